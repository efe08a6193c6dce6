//! Users: ownership of profiles, and users that only a name service knows (LDAP, sssd). The test builds a module of the C
//! library's name service for them.

use super::rig::Home;
use ahead_tests::rig::prelude::*;
use std::ffi::OsStr;
use std::os::unix::fs::{chown, symlink};

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
    let Some(home) = Home::alone() else { return };
    let (source, module) = (home.path("module.c"), home.path("libnss_aheadtest.so.2"));
    fs::write(&source, MODULE).unwrap();
    let is_built = program("cc").args(["-shared", "-fPIC", "-o"]).args([&module, &source]).works();
    if !is_built || !Path::new("/etc/nsswitch.conf").exists() {
        return eprintln!("skipped: no C compiler, or no /etc/nsswitch.conf");
    }
    let services = home.path("nsswitch.conf");
    fs::write(&services, "passwd: files aheadtest\ngroup: files aheadtest\ninitgroups: files aheadtest\n").unwrap();
    let behind = |variables: &[(&str, &str)], options: &[&str]| {
        // In this mount namespace the system also queries that module.
        let words = ["--", "sh", "-c", "echo $(id -u) $(id -g) $(id -G) $HOME $USER"];
        let recorder = home.recorder(&[options, &words].concat()).env("LD_LIBRARY_PATH", home.directory.path());
        let recorder = recorder.apart(r#"mount --bind "$SERVICES" /etc/nsswitch.conf && exec "$@""#);
        let recorder = recorder.env("SERVICES", &services);
        variables.iter().fold(recorder, |recorder, (name, value)| recorder.env(name, value)).text().trim().to_owned()
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
fn record_for_ada(home: &Home, script: &str) -> Done {
    record_for_ada_with(home, &[], script)
}

fn record_for_ada_with(home: &Home, options: &[&OsStr], script: &str) -> Done {
    let passwd = home.path("passwd");
    let entry = format!("root:x:0:0::/root:/bin/sh\nada:x:{ADA}:{ADA}::{}:/bin/sh\n", home.path("ada").display());
    fs::write(&passwd, entry).unwrap();
    let record = ahead(["record"]).args(options).args(["--", "sh", "-c", script]).env("SUDO_USER", "ada");
    record.apart(r#"mount --bind "$PASSWD" /etc/passwd && exec "$@""#).env("PASSWD", passwd).done()
}

/// The home of that user, and a directory of root.
fn homes(home: &Home) -> (PathBuf, PathBuf) {
    let [ada, roots] = make_directories(home.directory.path(), ["ada", "roots"]);
    chown(&ada, Some(ADA), Some(ADA)).unwrap();
    (ada, roots)
}

fn assert_untouched(roots: &Path) {
    let now = fs::metadata(roots).unwrap();
    assert_eq!((now.uid(), fs::read_dir(roots).unwrap().count()), (0, 0), "root wrote through the user's link");
}

#[test]
fn profile_in_a_users_home_belongs_to_the_user_and_root_follows_no_link() {
    let Some(home) = Home::alone() else { return };
    let (ada, roots) = homes(&home);
    record_for_ada(&home, "id -u").success().out_is("54321\n");
    let kept = ada.join(".local/state/ahead");
    let profile = fs::read_dir(&kept).unwrap().next().expect("a profile").unwrap().path();
    for (path, mode) in [(&kept, 0o700), (&ada.join(".local"), 0o700), (&profile, 0o600)] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (ADA, mode), "{}", path.display());
    }

    // While the program runs, it replaces the directory with a link.
    let script = format!("cd ~/.local/state && mv ahead gone && ln -s {} ahead", roots.display());
    record_for_ada(&home, &script).code(125);
    assert_untouched(&roots);

    // The link exists before the recording, in a path where directories must be created.
    fs::remove_dir_all(ada.join(".local")).unwrap();
    symlink(&roots, ada.join(".local")).unwrap();
    record_for_ada(&home, "echo started").code(125).out_is("").says("cannot keep a profile in").in_one_line();
    assert_untouched(&roots);
    // The mode of root's directory is unchanged, too.
    assert_eq!(fs::metadata(&roots).unwrap().permissions().mode() & 0o077, 0o055);
}

/// Regression: root renamed the profile into the directory that the path named at the end, and made the user its owner.
#[test]
fn root_does_not_follow_a_directory_that_the_program_replaced() {
    let Some(home) = Home::alone() else { return };
    let (ada, roots) = homes(&home);
    let named = ada.join("d/p.ahead");
    let options = [OsStr::new("-o"), named.as_os_str()];
    fs::create_dir(ada.join("d")).unwrap();
    chown(ada.join("d"), Some(ADA), Some(ADA)).unwrap();
    let script = format!("cd ~ && mv d gone && ln -s {} d", roots.display());
    record_for_ada_with(&home, &options, &script).code(125).says("replaced");
    assert_untouched(&roots);

    // The link exists before the recording: the user may not write in its target, and root follows no link of the user.
    record_for_ada_with(&home, &options, "echo started").code(125).out_is("").says("not root's");
    assert_untouched(&roots);

    // A directory of root, in which the user may not write, and one of the user: the profile belongs to the user in
    // both.
    for place in [roots.join("p.ahead"), ada.join("p.ahead")] {
        record_for_ada_with(&home, &[OsStr::new("-o"), place.as_os_str()], "id -u").success();
        let metadata = fs::metadata(&place).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (ADA, 0o600), "{}", place.display());
    }
}

/// Regression: root's PATH was searched for the program, which inherited root's open files and secrets.
#[test]
fn another_users_program_inherits_no_environment_or_descriptors_of_root() {
    let Some(home) = Home::alone() else { return };
    let tool = home.path("only-on-roots-path");
    write_script(&tool, "");
    let record = |command: &[&str]| {
        let path = format!("{}:{}", home.directory.path().display(), std::env::var("PATH").unwrap());
        let recorder =
            home.recorder(&["--user", "nobody", "--"]).args(command).by_script("exec 9</etc/passwd && exec \"$@\"");
        let recorder = recorder.env("PATH", path).env("SECRET", "x").env("XDG_RUNTIME_DIR", "/run/user/0");
        let recorder = recorder.env("SSH_AUTH_SOCK", "/root/agent").env("LD_LIBRARY_PATH", "/root");
        recorder.env("LANG", "C.UTF-8").done()
    };
    let stdout = record(&["env"]).success().out;
    let mut names: Vec<&str> = stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["TERM", "TZ", "COLORTERM"].contains(name) && !name.starts_with("LC_"));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER"], "{stdout}");
    assert!(!stdout.contains(home.directory.path().to_str().unwrap()), "{stdout}");
    // Field 6 of the process's own stat line is its session.
    let script = "test -e /proc/self/fd/9 && echo open; read -r _ _ _ _ _ session _ </proc/$$/stat; \
                  test $session = $$ && echo apart";
    record(&["sh", "-c", script]).out_is("apart\n");
    record(&["only-on-roots-path"]).code(127);
}

/// The terminal sends its signals to its own session, and another user's program is in another one.
#[test]
fn ctrl_c_reaches_another_users_program() {
    let Some(home) = Home::undisturbed() else { return };
    if !program("script").arg("--version").works() {
        return eprintln!("skipped: no script(1)");
    }
    let command = format!(
        "'{}' record --user nobody -o '{}' -- sh -c 'echo started; exec sleep 600'",
        built("ahead").display(),
        home.profile().display()
    );
    let terminal = program("script").args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
    let mut terminal = terminal.open_input().start();
    terminal.prints("started");
    terminal.send("\x03");
    terminal.ends_with(128 + 2);
}
