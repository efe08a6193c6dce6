//! Users: ownership of profiles, and users that only a name service knows (LDAP, sssd). The test builds a module of the C
//! library's name service for them.

use super::rig::{Home, ahead, can_record, undisturbed, with_namespaces};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A name service module with one user, whose entry is longer than the first buffer, and one group.
const MODULE: &str = r#"
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static enum nss_status entry(struct passwd *result, char *buffer, size_t length, int *error)
{
    if (length < 5000) {
        *error = ERANGE;
        return NSS_STATUS_TRYAGAIN;
    }
    strcpy(buffer, "ada.of.ldap");
    strcpy(buffer + 100, "/home/ada");
    memset(buffer + 200, 'x', 4000);
    buffer[4200] = 0;
    *result = (struct passwd){ .pw_name = buffer, .pw_passwd = "*", .pw_uid = 54321, .pw_gid = 54322,
        .pw_gecos = buffer + 200, .pw_dir = buffer + 100, .pw_shell = "/bin/sh" };
    return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_aheadtest_getpwnam_r(const char *name, struct passwd *r, char *b, size_t n, int *e)
{
    return strcmp(name, "ada.of.ldap") == 0 ? entry(r, b, n, e) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_aheadtest_getpwuid_r(uid_t uid, struct passwd *r, char *b, size_t n, int *e)
{
    return uid == 54321 ? entry(r, b, n, e) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_aheadtest_initgroups_dyn(const char *name, gid_t gid, long *start, long *size, gid_t **groups,
                                              long limit, int *e)
{
    if (strcmp(name, "ada.of.ldap") != 0 || *start >= *size)
        return NSS_STATUS_NOTFOUND;
    (*groups)[(*start)++] = 54323;
    return NSS_STATUS_SUCCESS;
}
"#;

#[test]
fn a_sudo_user_of_the_name_service_is_found() {
    if !can_record() {
        return;
    }
    let _alone = with_namespaces();
    let home = Home::new();
    let (source, module) = (home.path("module.c"), home.path("libnss_aheadtest.so.2"));
    fs::write(&source, MODULE).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) || !Path::new("/etc/nsswitch.conf").exists() {
        eprintln!("skipped: no C compiler, or no /etc/nsswitch.conf");
        return;
    }
    let services = home.path("nsswitch.conf");
    fs::write(&services, "passwd: files aheadtest\ngroup: files aheadtest\ninitgroups: files aheadtest\n").unwrap();
    let behind = |variables: &[(&str, &str)], options: &[&str]| {
        // In this mount namespace the system also queries that module.
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", r#"mount --bind "$0" /etc/nsswitch.conf && exec "$@""#])
            .arg(&services)
            .arg(ahead().get_program())
            .arg("record")
            .arg("-o")
            .arg(home.profile())
            .args(options)
            .args(["--", "sh", "-c", "echo $(id -u) $(id -g) $(id -G) $HOME $USER"])
            .env("LD_LIBRARY_PATH", home.directory.path())
            .env_remove("SUDO_USER")
            .env_remove("SUDO_UID")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let ada = "54321 54322 54322 54323 /home/ada ada.of.ldap";
    assert_eq!(behind(&[("SUDO_USER", "ada.of.ldap"), ("SUDO_UID", "54321")], &[]), ada);
    assert_eq!(behind(&[("SUDO_USER", "ada.by.another.name"), ("SUDO_UID", "54321")], &[]), ada);
    assert_eq!(behind(&[("SUDO_UID", "54321")], &[]), ada);
    assert_eq!(behind(&[], &["--user", "ada.of.ldap"]), ada);
    assert_eq!(behind(&[], &["--user", "54321"]), ada);
}

const ADA: u32 = 54_321;

/// Records for a sudo user whose home is below `home`, without -o.
fn record_for_ada(home: &Home, script: &str) -> Output {
    record_for_ada_with(home, &[], script)
}

fn record_for_ada_with(home: &Home, options: &[&OsStr], script: &str) -> Output {
    let passwd = home.path("passwd");
    let entry = format!("root:x:0:0::/root:/bin/sh\nada:x:{ADA}:{ADA}::{}:/bin/sh\n", home.path("ada").display());
    fs::write(&passwd, entry).unwrap();
    Command::new("unshare")
        .args(["-m", "sh", "-c", r#"mount --bind "$0" /etc/passwd && exec "$@""#])
        .arg(&passwd)
        .arg(ahead().get_program())
        .arg("record")
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("SUDO_USER", "ada")
        .env_remove("SUDO_UID")
        .output()
        .unwrap()
}

/// The home of that user, and a directory of root.
fn homes(home: &Home) -> (PathBuf, PathBuf) {
    let (ada, roots) = (home.path("ada"), home.path("roots"));
    fs::create_dir(&ada).unwrap();
    fs::create_dir(&roots).unwrap();
    chown(&ada, Some(ADA), Some(ADA)).unwrap();
    (ada, roots)
}

fn assert_untouched(roots: &Path) {
    let now = fs::metadata(roots).unwrap();
    assert_eq!((now.uid(), fs::read_dir(roots).unwrap().count()), (0, 0), "root wrote through the user's link");
}

#[test]
fn profile_in_a_users_home_belongs_to_the_user_and_root_follows_no_link() {
    if !can_record() {
        return;
    }
    let _alone = with_namespaces();
    let home = Home::new();
    let (ada, roots) = homes(&home);
    let output = record_for_ada(&home, "id -u");
    assert!(output.status.success() && output.stdout == b"54321\n", "{output:?}");
    let kept = ada.join(".local/state/ahead");
    let profile = fs::read_dir(&kept).unwrap().next().expect("a profile").unwrap().path();
    for (path, mode) in [(&kept, 0o700), (&ada.join(".local"), 0o700), (&profile, 0o600)] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (ADA, mode), "{}", path.display());
    }

    // While the program runs, it replaces the directory with a link.
    let script = format!("cd ~/.local/state && mv ahead gone && ln -s {} ahead", roots.display());
    let output = record_for_ada(&home, &script);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_untouched(&roots);

    // The link exists before the recording, in a path where directories must be created.
    fs::remove_dir_all(ada.join(".local")).unwrap();
    symlink(&roots, ada.join(".local")).unwrap();
    let output = record_for_ada(&home, "echo started");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{message}");
    assert!(message.contains("cannot keep a profile in") && message.lines().count() == 1, "{message}");
    assert_untouched(&roots);
    // The mode of root's directory is unchanged, too.
    assert_eq!(fs::metadata(&roots).unwrap().permissions().mode() & 0o077, 0o055);
}

/// Regression: root renamed the profile into the directory that the path named at the end, and made the user its owner.
#[test]
fn root_does_not_follow_a_directory_that_the_program_replaced() {
    if !can_record() {
        return;
    }
    let _alone = with_namespaces();
    let home = Home::new();
    let (ada, roots) = homes(&home);
    let named = ada.join("d/p.ahead");
    let options = [OsStr::new("-o"), named.as_os_str()];
    fs::create_dir(ada.join("d")).unwrap();
    chown(ada.join("d"), Some(ADA), Some(ADA)).unwrap();
    let script = format!("cd ~ && mv d gone && ln -s {} d", roots.display());
    let output = record_for_ada_with(&home, &options, &script);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(message.contains("replaced"), "{message}");
    assert_untouched(&roots);

    // The link exists before the recording: the user may not write in its target, and root follows no link of the user.
    let output = record_for_ada_with(&home, &options, "echo started");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("not root's"), "{output:?}");
    assert_untouched(&roots);

    // A directory of root, in which the user may not write, and one of the user: the profile belongs to the user in
    // both.
    for place in [roots.join("p.ahead"), ada.join("p.ahead")] {
        let output = record_for_ada_with(&home, &[OsStr::new("-o"), place.as_os_str()], "id -u");
        assert!(output.status.success(), "{output:?}");
        let metadata = fs::metadata(&place).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (ADA, 0o600), "{}", place.display());
    }
}

/// Regression: root's PATH was searched for the program, which inherited root's open files and secrets.
#[test]
fn another_users_program_inherits_no_environment_or_descriptors_of_root() {
    if !can_record() {
        return;
    }
    let _alone = with_namespaces();
    let home = Home::new();
    let tool = home.path("only-on-roots-path");
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let record = |command: &[&str]| {
        let path = format!("{}:{}", home.directory.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", r#"exec 9<"$0" && exec "$@""#])
            .arg("/etc/passwd")
            .arg(ahead().get_program())
            .args(["record", "--user", "nobody", "-o"])
            .arg(home.profile())
            .arg("--")
            .args(command)
            .env("PATH", path)
            .env("SECRET", "x")
            .env("XDG_RUNTIME_DIR", "/run/user/0")
            .env("SSH_AUTH_SOCK", "/root/agent")
            .env("LD_LIBRARY_PATH", "/root")
            .env("LANG", "C.UTF-8")
            .env_remove("SUDO_USER")
            .env_remove("SUDO_UID")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let (status, stdout, errors) = record(&["env"]);
    assert_eq!(status, Some(0), "{}", String::from_utf8_lossy(&errors));
    let mut names: Vec<&str> = stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["TERM", "TZ", "COLORTERM"].contains(name) && !name.starts_with("LC_"));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER"], "{stdout}");
    assert!(!stdout.contains(home.directory.path().to_str().unwrap()), "{stdout}");
    // Field 6 of the process's own stat line is its session.
    let script = "test -e /proc/self/fd/9 && echo open; read -r _ _ _ _ _ session _ </proc/$$/stat; \
                  test $session = $$ && echo apart";
    let (_, stdout, errors) = record(&["sh", "-c", script]);
    assert_eq!(stdout, "apart\n", "{}", String::from_utf8_lossy(&errors));
    let (status, _, errors) = record(&["only-on-roots-path"]);
    assert_eq!(status, Some(127), "{}", String::from_utf8_lossy(&errors));
}

/// The terminal sends its signals to its own session, and another user's program is in another one.
#[test]
fn ctrl_c_reaches_another_users_program() {
    if !can_record() {
        return;
    }
    let _still = undisturbed();
    let home = Home::new();
    let (binary, profile) = (ahead().get_program().to_owned(), home.profile());
    let command = format!(
        "{} record --user nobody -o {} -- sh -c 'echo started; exec sleep 600'",
        binary.display(),
        profile.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
    terminal.env_remove("SUDO_USER").env_remove("SUDO_UID").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut terminal) = terminal.spawn() else { return eprintln!("skipped: no script(1)") };
    let mut output_text = String::new();
    let mut output = BufReader::new(terminal.stdout.take().unwrap());
    while !output_text.contains("started") {
        assert_ne!(output.read_line(&mut output_text).unwrap(), 0, "{output_text}");
    }
    let mut keys = terminal.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    output.read_to_string(&mut output_text).unwrap();
    drop(keys);
    assert_eq!(terminal.wait().unwrap().code(), Some(128 + 2), "{output_text}");
}
