# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ahead_global_optspecs
    string join \n h/help V/version
end

function __fish_ahead_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ahead_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ahead_using_subcommand
    set -l cmd (__fish_ahead_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ahead -n "__fish_ahead_needs_command" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_needs_command" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "record" -d 'Observe what a program reads and keep it as a profile'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "run" -d 'Start a program with the files it will read already on their way into memory'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "replay" -d 'Prefetch the pages of a profile or a list, without starting a program'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "list" -d 'List the profiles that `ahead run` finds by itself'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "forget" -d 'Remove profiles from the place where `ahead run` finds them'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "show" -d 'Show what a profile holds'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "check" -d 'Compare a profile with the files that are there now'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "import" -d 'Make a profile of a list: of paths, of ureadahead or readahead-list, or of patterns'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "export" -d 'Write the files of a profile as a list: for `ahead replay -`, ureadahead or readahead-list'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "compare" -d 'Measure a command cold, with ahead, and warm'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "pack" -d 'Move the recorded blocks of files together on a rotating disk (ext4)'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "boot" -d 'Make the machine start faster: observe boots, and prefetch what they read'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "restore" -d 'Undo what an ahead that was killed left behind'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "generate" -d 'A command of the laboratory (ahead-lab)'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "top" -d 'Show the read-ahead of running programs: windows, patterns, hits, misses, waste'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "steer" -d 'Steer the read-ahead of running programs: windows of single open files, fetches ahead'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time of a model'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "papers" -d 'Compare what papers say about read-ahead with the results here'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s o -l output -d 'Where to keep the profile [default: the place where `ahead run` looks for it]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l runs -d 'Record N runs and store for each page how many runs used it [default: 1; with --cold, a second run is recorded and kept if the first one was a first start]' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l user -d 'Run the program as this user [default: the user behind sudo]' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l pid -d 'Observe a running process and all that it starts, until it ends' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l cgroup -d 'Observe every process in this cgroup (a directory of the cgroup v2 file system)' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l duration -d 'End after this time; of several runs, each. A program that was started is ended with all that it started, and the exit status is 0' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-output -d 'End when a line of the program\'s output or errors matches; both become pipes' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-port -d 'End when a process listens on this TCP port' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-file -d 'End when this file appears, is replaced or is written' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l linger -d 'Go on for this time after the end that the --until-... flags describe, as in 30s: what is read beside the first work competes for the disk, too' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l root -d 'Keep only files below this directory, with paths relative to it: a profile of an image or a container, for use with --root or where the directory is the root' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l source -d 'Observe by this source or fail: tracepoints, fentry, kprobes or added (BPF), ftrace, or resident (needs --cold) [default: the best one that works here]' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l cold -d 'Evict the page cache, dentries and inodes of the whole machine before'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l precise -d 'Switch all read-ahead off meanwhile, so that exactly what is used is recorded; takes 1.5 times as long and more [default with --cold where faults cannot be limited to one page]'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l no-precise -d 'Leave read-ahead as it is'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l all -d 'Observe every process of the machine'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l any-arguments -d 'Keep a profile for this program in this directory with any arguments; `ahead run` uses it where there is none for the arguments that it is given'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l even-if-failed -d 'Replace an earlier profile though the program ends with a status other than 0'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l json -d 'Print what was recorded as one line of JSON on standard error: standard output is the program\'s'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s p -l profile -d 'Profile to prefetch [default: the one that `ahead record` keeps for this command and directory]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l budget -d 'Prefetch at most this much [default: half of the available memory]' -r
complete -c ahead -n "__fish_ahead_using_subcommand run" -l window -d 'Keep this much ahead of the program as it goes on, as in 64M, also of a profile that is larger than memory; auto: everything at once if memory holds it, otherwise a window' -r
complete -c ahead -n "__fish_ahead_using_subcommand run" -l device -d 'Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l account -d 'Write the account of the prefetch to this file, as JSON' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l messages -d 'Write the messages of ahead to this file, so that standard error has only those of the program' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l low-memory -d 'Read in the order of first use, in small steps and without gaps, and keep at most a quarter of the available memory ahead'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s v -l verbose -d 'Print the account as one line on standard error, after the program\'s end'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l root -d 'Look for the files below this directory: of an image or a container. Symbolic links are followed in it as in a chroot, never outside' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l budget -d 'Prefetch at most this much [default: half of the available memory]' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l window -d 'Keep this much ahead of the program as it goes on, as in 64M, also of a profile that is larger than memory; auto: everything at once if memory holds it, otherwise a window' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l follow -d 'Let the window follow this process and its descendants [default of --window: auto]' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l deadline -d 'Give up after this time, as in 30s' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l priority -d 'How much of the disks to take from other programs: idle leaves them what they want, and fills no rotating disk\'s queue' -r -f -a "idle\t''
normal\t''"
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l device -d 'Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand replay" -s 0 -l null -d 'The entries of the list end with a NUL byte, as those of find -print0'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l wait -d 'Return only when everything has arrived'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l low-memory -d 'Read in the order of first use, in small steps and without gaps, and keep at most a quarter of the available memory ahead'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l json -d 'Print the account as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand list" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand list" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -l profile -d 'Remove this profile, as `ahead list` names it' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand forget" -l all -d 'Remove all that `ahead list` lists'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l html -d 'Write one self-contained page with a timeline and page maps to this file; tables are then printed only with --sort, --top, --all, --extents or --timeline' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand show" -l sort -d 'Order of the files [default: order]' -r -f -a "order\t'By first use'
bytes\t'Most bytes used first'
path\t'By name'"
complete -c ahead -n "__fish_ahead_using_subcommand show" -l top -d 'How many files and milestones to print [default: 20]' -r
complete -c ahead -n "__fish_ahead_using_subcommand show" -l root -d 'Look for the files below this directory: of an image or a container. Symbolic links are followed in it as in a chroot, never outside' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand show" -l json -d 'Print JSON instead of tables (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l all -d 'Print every file and milestone, the first uses of files included'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l extents -d 'Print every extent, too, by first use; a run fetches extents in this order, from a rotating disk in order of position'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l timeline -d 'Print the program\'s own timeline, too: when each use comes with everything cached, and in which thread'
complete -c ahead -n "__fish_ahead_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand show" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand check" -l root -d 'Look for the files below this directory: of an image or a container. Symbolic links are followed in it as in a chroot, never outside' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand check" -l fix -d 'Write the profile again: without missing files and those of other kinds, with the new size and time of changed files that still have the used parts, and with each file once'
complete -c ahead -n "__fish_ahead_using_subcommand check" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand check" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand import" -s o -l output -d 'Where to write the profile' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand import" -l format -d 'What the list is [default: ureadahead if it has its signature, else list]' -r -f -a "list\t'PATH or PATH:START-END on each line'
readahead-list\t'A path on each line'
ureadahead\t'The pack of ureadahead'
template\t'Patterns with *, ?, [a-z] and ** on each line, with or without a range'"
complete -c ahead -n "__fish_ahead_using_subcommand import" -l root -d 'Look for the files below this directory: of an image or a container. Symbolic links are followed in it as in a chroot, never outside' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand import" -s 0 -l null -d 'Entries end with a NUL byte, as those of find -print0'
complete -c ahead -n "__fish_ahead_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand import" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand export" -l format -d 'The format of the list' -r -f -a "list\t'PATH:START-END on each line; PATH where the whole file was used'
readahead-list\t'A path on each line'
ureadahead\t'The pack of ureadahead, for the device with the most files'"
complete -c ahead -n "__fish_ahead_using_subcommand export" -s o -l output -d 'Where to write the list [default: standard output]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand export" -l root -d 'Write only files below this directory, with paths relative to it' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand export" -s 0 -l null -d 'End entries with a NUL byte instead of a line end'
complete -c ahead -n "__fish_ahead_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand export" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s p -l profile -d 'Profile to use [default: the one that `ahead record` makes for this command]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l device -d 'Use this description of the disks for the runs with the profile, as `ahead run --device` does' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l runs -d 'Rounds; the medians of all are reported' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l against -d 'Also measure another prefetcher: a shell command that runs before the program, its time included' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l prepare -d 'Shell command to run before each run, its time not included (to remove what the last run left)' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l html -d 'Also write a report with pictures' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-output -d 'End when a line of the program\'s output or errors matches; both become pipes' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-port -d 'End when a process listens on this TCP port' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-file -d 'End when this file appears, is replaced or is written' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l no-reference -d 'Do not make the extra recorded run: what was used is then taken from the profile'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l json -d 'Print JSON'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -l device -d 'Use this description of the disks, instead of what is known of them: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand pack" -l dry-run -d 'Show what would be moved and what that would bring, and change nothing'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -l undo -d 'Move everything back to where it was'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -l commit -d 'Free the old blocks; after that there is no --undo'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -l json -d 'Print the report as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand pack" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "install" -d 'Install and enable the units of systemd'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "status" -d 'Show whether boots are observed and replayed, and what the last replay did'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "record" -d 'Record the next boot, without replay, in place of the earlier recordings'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "show" -d 'Show the profile that the next boot replays, as `ahead show` does'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "remove" -d 'Disable and remove the units'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "replay" -d 'Prefetch what earlier boots read (ahead-boot-replay.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "observe" -d 'Observe this boot (ahead-boot-record.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "done" -d 'End the observation (ahead-boot-done.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "changed" -d 'Note that packages were changed (package triggers)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and not __fish_seen_subcommand_from install status record show remove replay observe done changed help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -l linger -d 'How long after default.target the observation goes on: what starts beside the login competes for the disk' -r
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -l stale -d 'Record a boot again when more than this share of the last replay was stale, percent' -r
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -l root -d 'Install into the system in this directory, which has the program at the path of --program' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -l program -d 'The path of the program in that system [default: that of this program; with --root /usr/bin/ahead]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from install" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from status" -l json -d 'Print JSON (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from status" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from record" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from record" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from show" -l json -d 'Print JSON instead of tables (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from show" -l all -d 'Print every file and milestone'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from show" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from remove" -l root -d 'Remove from the system in this directory' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from remove" -l purge -d 'Remove what was learned, too'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from remove" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from replay" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from observe" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from observe" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from done" -l stale -d 'Record the next boot if more of the last replay was stale, percent' -r
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from done" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from done" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from changed" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from changed" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "install" -d 'Install and enable the units of systemd'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show whether boots are observed and replayed, and what the last replay did'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "record" -d 'Record the next boot, without replay, in place of the earlier recordings'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the profile that the next boot replays, as `ahead show` does'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Disable and remove the units'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "replay" -d 'Prefetch what earlier boots read (ahead-boot-replay.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "observe" -d 'Observe this boot (ahead-boot-record.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "done" -d 'End the observation (ahead-boot-done.service)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "changed" -d 'Note that packages were changed (package triggers)'
complete -c ahead -n "__fish_ahead_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -l after -d 'Wait for the end of this process, and undo in silence what is noted for it' -r
complete -c ahead -n "__fish_ahead_using_subcommand restore" -l json -d 'Print what was undone as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand generate" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand top" -l interval -d 'Count accesses, waits and waste in intervals of this length [default without --once: 1s]' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l sort -d 'Order of the files, the largest number first [default: wait, without counts cached]' -r -f -a "pid\t''
comm\t''
pattern\t''
window\t''
rate\t''
hits\t''
locked\t''
misses\t''
wait\t''
issued\t''
wasted\t''
amplification\t''
cached\t''
size\t''"
complete -c ahead -n "__fish_ahead_using_subcommand top" -l pid -d 'Only this process; several times: any of them' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l path -l file -d 'Only files with such a path, as in \'/srv/**/*.db\' or \'*.db\'; several times: any of them' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l mount -d 'Only files of the file system that this path lies on' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand top" -l cgroup -d 'Only processes of this control group and of those below it' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l limit -d 'Print at most this number of files' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l count -d 'End after this number of intervals' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l explain -d 'Say in words what the kernel does with each open file of this process, why, and what would be better' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l source -d 'Count by this source of read-ahead decisions or fail: tracepoints, fentry or kprobes (BPF) [default: the best one that works here]' -r
complete -c ahead -n "__fish_ahead_using_subcommand top" -l once -d 'Print the open files once and end: their states, and with --interval what is counted in that time, or else what a running ahead steer has counted'
complete -c ahead -n "__fish_ahead_using_subcommand top" -l json -d 'Print JSON (see docs/reference/json.md): with --once one list, otherwise one line for each interval'
complete -c ahead -n "__fish_ahead_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand top" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l rules -d 'Which programs and files are steered, and how far: a file in TOML (see docs/reference/rules.md)' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l duration -d 'End after this time' -r
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l metrics -d 'Publish metrics for Prometheus in this file, which is replaced each second, or on a Unix socket (unix: alone is /run/ahead/steer.sock)' -r
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l sample-hits -d 'Count accesses to cached pages, too, in one of N blocks of 64 pages; a BPF program then runs at each access' -r
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l max-window -d 'Largest window, as in 4M; the rules may have a smaller one [default: 16M]' -r
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l dry-run -d 'Change nothing: print what would be done, and why'
complete -c ahead -n "__fish_ahead_using_subcommand steer" -l json -d 'Print one JSON object for each act, and a summary at the end (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand steer" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand steer" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l policy -d 'The read-ahead: kernel, or a policy, in which n stands for each of --pages; or direct, which reads the files past the page cache and gives the throughput of the disk. The others are compared with the first (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l directory -d 'Directory of the files' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l size -d 'Length of a file [default: 100M for mmapit, 200M for bonnie, 512M for random, else 128M]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l block -d 'Bytes of a call [default: 32K for streams, 4K for random, 16K for patterns; fixed for the others]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l streams -d 'Numbers of readers, for streams [default: 1,2,4,8,16]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l count -d 'Accesses, for random [default: 2000]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l pages -d 'Pages to read ahead: the kernel\'s window (needs root), the window of policies that have one, and n; each value is run [default: the current window of the device]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l runs -d 'Number of rounds; the result is the median' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l html -d 'Write a page with the rows and the papers\' figures to this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l warm -d 'Cache everything before a run, instead of nothing: the time of the processor alone'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l size -d 'Size of the disk, as in 512M or 4G' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l fs -d 'File system to make' -r -f -a "ext2\t''
ext3\t''
ext4\t''
xfs\t''
btrfs\t''
none\t'Leave the disk empty'"
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l model -d 'Model of the disk: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l mount -d 'Empty directory to mount it on; without --mount there is only the block device' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l write-log -d 'Log writes and flushes, with their data, in this new file: to test what a power cut leaves' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l stall -d 'Add this delay to every read, as in 80ms' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l preload -d 'Serve reads from a copy of the image in memory, which a drop of caches does not affect'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l json -d 'Print the disk as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l model -d 'Model of the disk: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l mount -d 'Empty directory to mount it on; without --mount there is only the block device' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l write-log -d 'Log writes and flushes, with their data, in this new file: to test what a power cut leaves' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l stall -d 'Add this delay to every read, as in 80ms' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-only -d 'Refuse writes'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l preload -d 'Serve reads from a copy of the image in memory, which a drop of caches does not affect'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l json -d 'Print the disk as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -l json -d 'Print them as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reset -d 'Set the counters to zero after showing them'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reads -d 'Show the last reads, too (at most 4096 since the last reset): offset, length, time of the model'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l json -d 'Print them as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l fail -d 'Fail reads that touch these bytes of the disk, too: START+LENGTH or START-END (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l stall -d 'Add this delay to every read, as in 80ms; 0 removes it' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l clear -d 'Remove all earlier faults first'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l json -d 'Print the faults as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -l all -d 'Detach all disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -l json -d 'Print the detached disks as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from serve" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l html -d 'Write a page for each paper and an index to this directory, with the papers\' figures from our data' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l boots -d 'Show boots of real systems beside Opdenacker\'s table 1: a file that `make bench-boot` writes (bench/results/boot.json)' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l json -d 'Print JSON instead of text (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l live -d 'Also run workloads against the real page cache where this is possible, on emulated disks; takes some minutes, needs root'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l only -d 'Measure only these parts, separated by commas [default: all]' -r -f -a "windows\t'Windows of a sequential reader, explicit requests, read-around of faults'
faults\t'Pages that a fault on cached pages maps'
cache\t'Amount of data that stays cached: reads all of the file, by default for at most 2 seconds'
layout\t'Block size, direct and indirect blocks'
disk\t'Access time, bandwidth, requests at once, seeks, limits'"
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l size -d 'Length of the test file in a directory, at least 1M [default: 128M, or less if space is scarce]' -r
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l figures -d 'Write Pelouin\'s figures 1 to 5, from the data of this disk, to this directory, as SVG and as a page' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l model -d 'Write the disk\'s twin, a model for `ahead sim` and `ahead disk`, to this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l timing-only -d 'Use only times of reads, as Pelouin did: no cachestat, no mincore, no SEEK_HOLE'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l verify -d 'Compare with sysfs, superblock, FIEMAP and the model of an emulated disk; exit status 1 if a value differs'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l save -d 'Keep the description of this device (by the serial number of the disk, or the UUID of the file system), so that `ahead run`, `replay` and `compare` plan with it: as root for all users (/var/lib/ahead/devices), else for you ($XDG_STATE_HOME/ahead/devices)'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l html -d 'Write a page with the scenario, figures and charts to this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l acts -d 'Print each act of `ahead steer` on these programs, with its reason, instead of figures (policy steer)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l policy -d 'Policies, as listed by `ahead sim policies`, separated by commas (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l window -d 'Largest windows (read_ahead_kb) with units, as in 128K,4M (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l device -d 'Disks: built-in models, or files with a model (see docs/reference/device-model.md), separated by commas (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l jobs -d 'Number of concurrent runs [default: the number of processors]' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l html -d 'Write a page with figures and charts to this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l disk -d 'Disk: hdd, ssd, nvme, emmc, cloud, one of the papers\' disks, or a model in TOML (see docs/reference/device-model.md)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l size -d 'Size of the disk: seeks of a rotating disk depend on it [default: twice as far as the profile reaches]' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l device -d 'Plan with this description of the disk instead of the model\'s own: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l budget -d 'Prefetch at most this much' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l priority -d 'How much of the disk to take from other programs, as of `ahead replay`' -r -f -a "idle\t''
normal\t''"
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON instead of lines (see docs/reference/device-description.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -l json -d 'Print JSON instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s o -l output -d 'File for the trace' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -l cold -d 'First evict the page cache, dentries and inodes of the whole machine'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l policy -d 'Compare with this policy instead of that of the recorded kernel: linux-6.12, linux-6.18, linux-7.2' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l differences -d 'Number of differing decisions to print' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l access-time -d 'Time until the first byte of a request, as in 8ms' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l bandwidth -d 'Bandwidth from the first byte on, as in 100MB/s (a megabyte is 1024 × 1024 bytes)' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l workload -d 'Measure this workload instead of the four jobs: a profile of `ahead record`, whose files must lie on the target, or a trace of `ahead sim trace`, which is repeated on files of the same lengths' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l streams -d 'Number of streams at the same time' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l kb -d 'Measure nothing, and set this window with --apply or --persist, as in 512K or 4M; KiB if no unit is given' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l root -d 'Keep rules and earlier values below this directory instead of /' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l all -d 'Tune every device with a mount'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l plan -d 'Touch no disk: print Wu\'s table of latency and throughput for each request size, from --access-time and --bandwidth'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l exhaustive -d 'Try every window three times: this takes four times as long and shows the whole curve'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l apply -d 'Set the window; --restore sets the earlier one again'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l persist -d 'Set the window now and after each restart, by a udev rule for exactly this target, or by a systemd unit where the target has no udev event'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l check -d 'Compare the rule with the current window; exit status 1 if they differ or there is no rule'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l restore -d 'Undo --apply and --persist'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -s v -l verbose -d 'Print every column: latencies, amplification, unused bytes, spread'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "record" -d 'Observe what a program reads and keep it as a profile'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "run" -d 'Start a program with the files it will read already on their way into memory'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "replay" -d 'Prefetch the pages of a profile or a list, without starting a program'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "list" -d 'List the profiles that `ahead run` finds by itself'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "forget" -d 'Remove profiles from the place where `ahead run` finds them'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "show" -d 'Show what a profile holds'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "check" -d 'Compare a profile with the files that are there now'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "import" -d 'Make a profile of a list: of paths, of ureadahead or readahead-list, or of patterns'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "export" -d 'Write the files of a profile as a list: for `ahead replay -`, ureadahead or readahead-list'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "compare" -d 'Measure a command cold, with ahead, and warm'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "pack" -d 'Move the recorded blocks of files together on a rotating disk (ext4)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "boot" -d 'Make the machine start faster: observe boots, and prefetch what they read'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "restore" -d 'Undo what an ahead that was killed left behind'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "generate" -d 'A command of the laboratory (ahead-lab)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "top" -d 'Show the read-ahead of running programs: windows, patterns, hits, misses, waste'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "steer" -d 'Steer the read-ahead of running programs: windows of single open files, fetches ahead'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time of a model'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "papers" -d 'Compare what papers say about read-ahead with the results here'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show check import export compare pack boot restore generate top steer bench disk papers probe sim tune help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "install" -d 'Install and enable the units of systemd'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "status" -d 'Show whether boots are observed and replayed, and what the last replay did'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "record" -d 'Record the next boot, without replay, in place of the earlier recordings'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "show" -d 'Show the profile that the next boot replays, as `ahead show` does'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "remove" -d 'Disable and remove the units'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "replay" -d 'Prefetch what earlier boots read (ahead-boot-replay.service)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "observe" -d 'Observe this boot (ahead-boot-record.service)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "done" -d 'End the observation (ahead-boot-done.service)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "changed" -d 'Note that packages were changed (package triggers)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
