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
complete -c ahead -n "__fish_ahead_needs_command" -f -a "replay" -d 'Fetch what a profile lists, without starting anything'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "list" -d 'List the profiles that `ahead run` finds by itself'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "forget" -d 'Remove profiles from the place where `ahead run` finds them'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "show" -d 'Show what a profile holds'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "compare" -d 'Measure a command cold, with ahead, and warm'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "restore" -d 'Undo what an ahead that was killed left behind'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "generate" -d 'A command of the laboratory (ahead-lab)'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time a model says'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "papers" -d 'Compare what papers say about read-ahead with what comes out here'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead -n "__fish_ahead_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s o -l output -d 'Where to keep the profile [default: the place where `ahead run` looks for it]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l runs -d 'Record so many runs and keep how many of them used each page' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l user -d 'Run the program as this user [default: the user behind sudo]' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l pid -d 'Observe a running process and all that it starts, until it ends' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l cgroup -d 'Observe every process in this cgroup (a directory of the cgroup v2 file system)' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l duration -d 'End after this time; of several runs, each. A program that was started is ended with all that it started, and the exit status is 0' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-output -d 'Ends when a line of the program\'s output or errors matches; both become pipes for that' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-port -d 'Ends when something listens on this TCP port, as the kernel\'s table says' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l until-file -d 'Ends when this file appears, or is replaced or written' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand record" -l source -d 'Take events from this source or fail (tracepoints, fentry, kprobes, added)' -r
complete -c ahead -n "__fish_ahead_using_subcommand record" -l cold -d 'Evict the page cache, dentries and inodes of the whole machine before'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l precise -d 'Switch all read-ahead off meanwhile, so that exactly what is used is recorded; takes 1.5 times as long and more [default with --cold]'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l no-precise -d 'Leave read-ahead as it is'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l all -d 'Observe every process of the machine'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l any-arguments -d 'Keep a profile for this program in this directory with any arguments; `ahead run` uses it where there is none for the arguments that it is given'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l even-if-failed -d 'Replace an earlier profile though the program ends with a status other than 0'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l json -d 'Print what was recorded as one line of JSON on standard error: standard output is the program\'s'
complete -c ahead -n "__fish_ahead_using_subcommand record" -l discard-output -d 'Send the program\'s output and errors to /dev/null, and only our own messages to standard error'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand record" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s p -l profile -d 'Profile to fetch [default: the one that `ahead record` keeps for this command and directory]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l budget -d 'Fetch at most this much [default: half of the available memory]' -r
complete -c ahead -n "__fish_ahead_using_subcommand run" -l device -d 'Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l account -d 'Write what was fetched to this file, as JSON' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -l messages -d 'Write our own messages to this file: standard error is then the program\'s alone' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand run" -s v -l verbose -d 'Print what was prefetched as one line on standard error, after the program\'s end'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand run" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l budget -d 'Fetch at most this much [default: half of the available memory]' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l deadline -d 'Give up after this time, as in 30s' -r
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l priority -d 'How much of the disks to take from other programs: idle leaves them what they want, and fills no rotating disk\'s queue' -r -f -a "idle\t''
normal\t''"
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l device -d 'Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l wait -d 'Return only when everything has arrived'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -l json -d 'Print the account as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand replay" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand list" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand list" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -l profile -d 'Remove this profile, as `ahead list` names it' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand forget" -l all -d 'Remove all that `ahead list` lists'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand forget" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l html -d 'Write a page with a timeline and page maps to this file, which needs nothing else to be viewed' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand show" -l sort -d 'Order of the files' -r -f -a "order\t'By first use'
bytes\t'Most bytes used first'
path\t'By name'"
complete -c ahead -n "__fish_ahead_using_subcommand show" -l top -d 'How many files and milestones to print' -r
complete -c ahead -n "__fish_ahead_using_subcommand show" -l json -d 'Print JSON instead of tables (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l all -d 'Print every file and milestone, first uses of files among these'
complete -c ahead -n "__fish_ahead_using_subcommand show" -l extents -d 'Print every extent too, by first use: a run fetches them in this order, but from a rotating disk by position'
complete -c ahead -n "__fish_ahead_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand show" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s p -l profile -d 'Profile to use [default: the one that `ahead record` makes for this command]' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l runs -d 'Rounds; the medians of all are reported' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l against -d 'Also measure a prefetcher of somebody else: a shell command that is run before the program, its time included' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l prepare -d 'Shell command to run before each run, its time not included (to remove what the last run left)' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l html -d 'Also write a report with pictures' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-output -d 'Ends when a line of the program\'s output or errors matches; both become pipes for that' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-port -d 'Ends when something listens on this TCP port, as the kernel\'s table says' -r
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l until-file -d 'Ends when this file appears, or is replaced or written' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l no-reference -d 'Do not make the extra recorded run: what was used is then taken from the profile'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -l json -d 'Print JSON'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand compare" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -l after -d 'Wait for the end of this process, and undo in silence what is noted for it' -r
complete -c ahead -n "__fish_ahead_using_subcommand restore" -l json -d 'Print what was undone as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand restore" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand generate" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l policy -d 'Who reads ahead: kernel, or a policy; n in it stands for each of --pages. Or direct: the files are read whole, past the page cache, which is what the disk transfers. The first one is what others are compared with (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l directory -d 'Where the files are made' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l size -d 'Length of a file [default: 100M for mmapit, 200M for bonnie, 512M for random, else 128M]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l block -d 'What a call reads [default: 32K for streams, 4K for random, 16K for patterns; the others have their own]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l streams -d 'Numbers of readers, for streams [default: 1,2,4,8,16]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l count -d 'Accesses, for random [default: 2000]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l pages -d 'Pages to read ahead: the kernel\'s window (needs root), that of policies that have one, and n. Each of them is run [default: as the device is set]' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l runs -d 'How often everything is run, in turn; the result is the median' -r
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l html -d 'Write a page with the rows and the papers\' figures from them into this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l warm -d 'Everything is cached before, instead of nothing: what the processor alone needs'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand bench" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "attach" -d 'Attach an image and mount what is on it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "stat" -d 'Show what a disk has served, and how punctually'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "finish-after" -d 'Clean up after a daemon whose start was broken off'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l size -d 'Size of the disk, as in 512M or 4G' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l fs -d 'File system to make' -r -f -a "ext2\t''
ext3\t''
ext4\t''
xfs\t''
btrfs\t''
none\t'Leave the disk empty'"
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l model -d 'The disk\'s model: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l mount -d 'Empty directory to mount it on; without it there is only the block device' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l stall -d 'Answer every read that much later than the model says, in milliseconds' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l preload -d 'Serve reads from a copy of the image\'s data in memory, which dropping caches does not touch'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -l json -d 'Print the disk as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from create" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l model -d 'The disk\'s model: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l mount -d 'Empty directory to mount it on; without it there is only the block device' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l stall -d 'Answer every read that much later than the model says, in milliseconds' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-only -d 'Refuse writes'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l preload -d 'Serve reads from a copy of the image\'s data in memory, which dropping caches does not touch'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -l json -d 'Print the disk as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from attach" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -l json -d 'Print them as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reset -d 'Set the counters to zero after showing them'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reads -d 'Show the last reads, too (at most 4096 since the last reset): where, how long, the time they took by the model'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -l json -d 'Print them as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from stat" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l fail -d 'Fail reads that touch these bytes of the disk, too: START+LENGTH or START-END (may be repeated)' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l stall -d 'Answer every read that much later than the model says, in milliseconds; 0 ends it' -r
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l clear -d 'Forget all earlier faults first'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -l json -d 'Print the faults as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from fault" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -l all -d 'Detach all disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -l json -d 'Print what was detached as JSON'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from detach" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from serve" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "attach" -d 'Attach an image and mount what is on it'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show what a disk has served, and how punctually'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "finish-after" -d 'Clean up after a daemon whose start was broken off'
complete -c ahead -n "__fish_ahead_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l html -d 'Write a page for each paper and an index into this directory, with the papers\' figures from our data' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l json -d 'Print JSON instead of text (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -l live -d 'Run what makes sense there against the real page cache, too: on emulated disks, some minutes. Needs root'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand papers" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l only -d 'Find out only this; several with commas between them [default: everything]' -r -f -a "windows\t'Windows of a sequential reader, explicit requests, what is read around a fault'
faults\t'What a fault of cached pages maps'
cache\t'Where cached data stops being cached: reads all of the file, by default for no longer than 2 seconds'
layout\t'Block size, direct and indirect blocks'
disk\t'Access time, bandwidth, requests at once, seeks, limits'"
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l size -d 'Length of the test file that is made in a directory, at least 1M [default: 128M, or what there is room for]' -r
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l figures -d 'Draw Pelouin\'s figures 1 to 5 from this disk\'s data into this directory, as SVG and as a page' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l model -d 'Write the disk\'s twin, a model for `ahead sim` and `ahead disk`, into this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l timing-only -d 'Look at nothing but the times of reads, as Pelouin did: no cachestat, no mincore, no SEEK_HOLE'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l verify -d 'Compare with what sysfs, the superblock, FIEMAP and the emulated disk\'s model say; exit status 1 if something differs'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l save -d 'Keep the description of this device (by the serial number of the disk, or the UUID of the file system), so that `ahead run`, `replay` and `compare` plan with it: as root for everybody (/var/lib/ahead/devices), else for you ($XDG_STATE_HOME/ahead/devices)'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand probe" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "trace" -d 'Record what the kernel\'s read-ahead decides for a program'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l html -d 'Write a page with the scenario, the figures and pictures of them into this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from run" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l policy -d 'Policies, as `ahead sim policies` lists them; several with commas between them, or the option again' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l window -d 'Largest windows as sizes (128K,4M), likewise: what read_ahead_kb sets' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l device -d 'Disks, likewise: built-in models, or files with a model (see docs/formats.md)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l jobs -d 'Run so many at a time [default: as many as there are processors]' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l html -d 'Write a page with the figures and pictures of them into this file' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l disk -d 'Disk: hdd, ssd, nvme, emmc, cloud, one of the papers\' disks, or a model in TOML (see docs/formats.md)' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l size -d 'Size of the disk: seeks of a rotating disk depend on it [default: twice as far as the profile reaches]' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l device -d 'Plan with this description of the disk instead of the model\'s own: a device description or a disk model' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l budget -d 'Fetch at most this much' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l priority -d 'How much of the disk to take from other programs, as of `ahead replay`' -r -f -a "idle\t''
normal\t''"
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON instead of lines (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from replay" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -l json -d 'Print JSON instead of a table'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -s h -l help -d 'Print help'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from policies" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s o -l output -d 'Where to keep the trace' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -l cold -d 'Evict the page cache, dentries and inodes of the whole machine before'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from trace" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l policy -d 'Compare with this policy instead of the kernel\'s own: linux-6.12, linux-6.18, linux-7.2' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l differences -d 'Print so many of the decisions that differ' -r
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from conform" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "trace" -d 'Record what the kernel\'s read-ahead decides for a program'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead -n "__fish_ahead_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l access-time -d 'Until the first byte of a request, as in 8ms' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l bandwidth -d 'From then on, as in 100MB/s (a megabyte is 1024 × 1024 bytes)' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l workload -d 'Measure what programs have read instead: a profile of `ahead record`, whose files must lie on the target, or a trace of `ahead sim trace`, which is repeated on files of the same lengths' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l streams -d 'Streams at the same time' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l kb -d 'Measure nothing: this is the window to set with --apply or --persist, as in 512K or 4M; a number alone is KiB' -r
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l root -d 'Keep rules and earlier values below this directory instead of /' -r -F
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l all -d 'Every device that something is mounted from'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l plan -d 'Touch no disk: print what a disk of --access-time and --bandwidth gives for each size of a request, as Wu did'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l exhaustive -d 'Try every window three times: takes four times as long, and shows the whole curve'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l apply -d 'Set the window; what is set now is kept for --restore'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l persist -d 'Set it, and again after each restart: by a udev rule, or a systemd unit where no udev event tells of the target, that names exactly this target'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l check -d 'Compare the rule with what is set; exit status 1 if they differ or there is no rule'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l restore -d 'Take back what --apply and --persist have done'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -l json -d 'Print JSON instead of a table (see docs/formats.md)'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead -n "__fish_ahead_using_subcommand tune" -s V -l version -d 'Print version'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "record" -d 'Observe what a program reads and keep it as a profile'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "run" -d 'Start a program with the files it will read already on their way into memory'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "replay" -d 'Fetch what a profile lists, without starting anything'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "list" -d 'List the profiles that `ahead run` finds by itself'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "forget" -d 'Remove profiles from the place where `ahead run` finds them'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "show" -d 'Show what a profile holds'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "compare" -d 'Measure a command cold, with ahead, and warm'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "restore" -d 'Undo what an ahead that was killed left behind'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "generate" -d 'A command of the laboratory (ahead-lab)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time a model says'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "papers" -d 'Compare what papers say about read-ahead with what comes out here'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead -n "__fish_ahead_using_subcommand help; and not __fish_seen_subcommand_from record run replay list forget show compare restore generate bench disk papers probe sim tune help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "attach" -d 'Attach an image and mount what is on it'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "list" -d 'List the emulated disks'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "stat" -d 'Show what a disk has served, and how punctually'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "finish-after" -d 'Clean up after a daemon whose start was broken off'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "policies" -d 'List the policies'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "trace" -d 'Record what the kernel\'s read-ahead decides for a program'
complete -c ahead -n "__fish_ahead_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
