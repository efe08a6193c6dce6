# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ahead_lab_global_optspecs
    string join \n h/help V/version
end

function __fish_ahead_lab_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ahead_lab_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ahead_lab_using_subcommand
    set -l cmd (__fish_ahead_lab_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time of a model'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "papers" -d 'Compare what papers say about read-ahead with the results here'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "restore" -d 'Undo the changes of a killed process; the guardian of this program runs it'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "generate" -d 'Write man pages, shell completions and the table of metrics'
complete -c ahead-lab -n "__fish_ahead_lab_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l policy -d 'The read-ahead: kernel, or a policy, in which n stands for each of --pages; or direct, which reads the files past the page cache and gives the throughput of the disk. The others are compared with the first (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l directory -d 'Directory of the files' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l size -d 'Length of a file [default: 100M for mmapit, 200M for bonnie, 512M for random, else 128M]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l block -d 'Bytes of a call [default: 32K for streams, 4K for random, 16K for patterns; fixed for the others]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l streams -d 'Numbers of readers, for streams [default: 1,2,4,8,16]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l count -d 'Accesses, for random [default: 2000]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l pages -d 'Pages to read ahead: the kernel\'s window (needs root), the window of policies that have one, and n; each value is run [default: the current window of the device]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l runs -d 'Number of rounds; the result is the median' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l html -d 'Write a page with the rows and the papers\' figures to this file' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l warm -d 'Cache everything before a run, instead of nothing: the time of the processor alone'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand bench" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "list" -d 'List the emulated disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and not __fish_seen_subcommand_from create attach list stat fault detach serve finish-after help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l size -d 'Size of the disk, as in 512M or 4G' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l fs -d 'File system to make' -r -f -a "ext2\t''
ext3\t''
ext4\t''
xfs\t''
btrfs\t''
none\t'Leave the disk empty'"
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l model -d 'Model of the disk: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l mount -d 'Empty directory to mount it on; without --mount there is only the block device' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l write-log -d 'Log writes and flushes, with their data, in this new file: to test what a power cut leaves' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l stall -d 'Add this delay to every read, as in 80ms' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l preload -d 'Serve reads from a copy of the image in memory, which a drop of caches does not affect'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -l json -d 'Print the disk as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from create" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l model -d 'Model of the disk: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8, or a TOML file' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l mount -d 'Empty directory to mount it on; without --mount there is only the block device' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l name -d 'Name of the disk [default: the image\'s name without extension]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-ahead-kb -d 'Read-ahead window of the device, KiB' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l write-log -d 'Log writes and flushes, with their data, in this new file: to test what a power cut leaves' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l fail -d 'Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l stall -d 'Add this delay to every read, as in 80ms' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l read-only -d 'Refuse writes'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l preload -d 'Serve reads from a copy of the image in memory, which a drop of caches does not affect'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -l json -d 'Print the disk as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from attach" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from list" -l json -d 'Print them as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reset -d 'Set the counters to zero after showing them'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from stat" -l reads -d 'Show the last reads, too (at most 4096 since the last reset): offset, length, time of the model'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from stat" -l json -d 'Print them as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from stat" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -l fail -d 'Fail reads that touch these bytes of the disk, too: START+LENGTH or START-END (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -l stall -d 'Add this delay to every read, as in 80ms; 0 removes it' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -l clear -d 'Remove all earlier faults first'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -l json -d 'Print the faults as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from fault" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from detach" -l all -d 'Detach all disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from detach" -l json -d 'Print the detached disks as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from detach" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from detach" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from serve" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from finish-after" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the emulated disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand disk; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -l html -d 'Write a page for each paper and an index to this directory, with the papers\' figures from our data' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -l boots -d 'Show boots of real systems beside Opdenacker\'s table 1: a file that `make bench-boot` writes (bench/results/boot.json)' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -l json -d 'Print JSON instead of text (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -l live -d 'Also run workloads against the real page cache where this is possible, on emulated disks; takes some minutes, needs root'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand papers" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l only -d 'Measure only these parts, separated by commas [default: all]' -r -f -a "windows\t'Windows of a sequential reader, explicit requests, read-around of faults'
faults\t'Pages that a fault on cached pages maps'
cache\t'Amount of data that stays cached: reads all of the file, by default for at most 2 seconds'
layout\t'Block size, direct and indirect blocks'
disk\t'Access time, bandwidth, requests at once, seeks, limits'"
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l size -d 'Length of the test file in a directory, at least 1M [default: 128M, or less if space is scarce]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l figures -d 'Write Pelouin\'s figures 1 to 5, from the data of this disk, to this directory, as SVG and as a page' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l model -d 'Write the disk\'s twin, a model for `ahead sim` and `ahead disk`, to this file' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l timing-only -d 'Use only times of reads, as Pelouin did: no cachestat, no mincore, no SEEK_HOLE'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l verify -d 'Compare with sysfs, superblock, FIEMAP and the model of an emulated disk; exit status 1 if a value differs'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l save -d 'Keep the description of this device (by the serial number of the disk, or the UUID of the file system), so that `ahead run`, `replay` and `compare` plan with it: as root for all users (/var/lib/ahead/devices), else for you ($XDG_STATE_HOME/ahead/devices)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand probe" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "policies" -d 'List the policies'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and not __fish_seen_subcommand_from run sweep replay policies trace conform help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -l html -d 'Write a page with the scenario, figures and charts to this file' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -l acts -d 'Print each act of `ahead steer` on these programs, with its reason, instead of figures (policy steer)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from run" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l policy -d 'Policies, as listed by `ahead sim policies`, separated by commas (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l window -d 'Largest windows (read_ahead_kb) with units, as in 128K,4M (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l device -d 'Disks: built-in models, or files with a model (see docs/reference/device-model.md), separated by commas (may be repeated)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l jobs -d 'Number of concurrent runs [default: the number of processors]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l html -d 'Write a page with figures and charts to this file' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l csv -d 'Print comma-separated values instead of a table'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l disk -d 'Disk: hdd, ssd, nvme, emmc, cloud, one of the papers\' disks, or a model in TOML (see docs/reference/device-model.md)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l size -d 'Size of the disk: seeks of a rotating disk depend on it [default: twice as far as the profile reaches]' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l device -d 'Plan with this description of the disk instead of the model\'s own: a device description or a disk model' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l budget -d 'Prefetch at most this much' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l priority -d 'How much of the disk to take from other programs, as of `ahead replay`' -r -f -a "idle\t''
normal\t''"
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON instead of lines (see docs/reference/device-description.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from replay" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from policies" -l json -d 'Print JSON instead of a table'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from policies" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from policies" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from trace" -s o -l output -d 'File for the trace' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from trace" -l cold -d 'First evict the page cache, dentries and inodes of the whole machine'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from trace" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from conform" -l policy -d 'Compare with this policy instead of that of the recorded kernel: linux-6.12, linux-6.18, linux-7.2' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from conform" -l differences -d 'Number of differing decisions to print' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from conform" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from conform" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from conform" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "policies" -d 'List the policies'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l access-time -d 'Time until the first byte of a request, as in 8ms' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l bandwidth -d 'Bandwidth from the first byte on, as in 100MB/s (a megabyte is 1024 × 1024 bytes)' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l workload -d 'Measure this workload instead of the four jobs: a profile of `ahead record`, whose files must lie on the target, or a trace of `ahead sim trace`, which is repeated on files of the same lengths' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l streams -d 'Number of streams at the same time' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l kb -d 'Measure nothing, and set this window with --apply or --persist, as in 512K or 4M; KiB if no unit is given' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l root -d 'Keep rules and earlier values below this directory instead of /' -r -F
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l all -d 'Tune every device with a mount'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l plan -d 'Touch no disk: print Wu\'s table of latency and throughput for each request size, from --access-time and --bandwidth'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l exhaustive -d 'Try every window three times: this takes four times as long and shows the whole curve'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l apply -d 'Set the window; --restore sets the earlier one again'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l persist -d 'Set the window now and after each restart, by a udev rule for exactly this target, or by a systemd unit where the target has no udev event'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l check -d 'Compare the rule with the current window; exit status 1 if they differ or there is no rule'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l restore -d 'Undo --apply and --persist'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -s v -l verbose -d 'Print every column: latencies, amplification, unused bytes, spread'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -l json -d 'Print JSON instead of a table (see docs/reference/json.md)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand tune" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand restore" -l after -d 'Wait for the end of this process, and undo in silence what is noted for it' -r
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand restore" -l json -d 'Print what was undone as JSON'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand restore" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand restore" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand generate" -s h -l help -d 'Print help'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand generate" -s V -l version -d 'Print version'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "bench" -d 'Run jobs with real I/O, under the kernel\'s read-ahead or any policy'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "disk" -d 'Emulate a slow disk: a real block device whose reads take the time of a model'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "papers" -d 'Compare what papers say about read-ahead with the results here'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "probe" -d 'Find out what a disk and a kernel really do: windows, block size, access time, bandwidth'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "sim" -d 'Run read-ahead policies over workloads in a simulated machine'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "tune" -d 'Find the read-ahead window that serves a disk best, set it, and keep it'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "restore" -d 'Undo the changes of a killed process; the guardian of this program runs it'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "generate" -d 'Write man pages, shell completions and the table of metrics'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and not __fish_seen_subcommand_from bench disk papers probe sim tune restore generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "create" -d 'Make an image with a file system on it, attach and mount it'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "attach" -d 'Attach an image and mount its file system'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "list" -d 'List the emulated disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "stat" -d 'Show the counters of a disk, and the lateness of its answers'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "fault" -d 'Change the faults that a disk injects into its reads'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "detach" -d 'Unmount and detach a disk; the image stays'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "serve" -d 'Serve one disk (started by create and attach)'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from disk" -f -a "finish-after" -d 'Clean up after a daemon whose start was interrupted'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "run" -d 'Run the policies of a scenario and compare them'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "sweep" -d 'Run a scenario\'s workloads with other policies, windows and disks'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "replay" -d 'Replay a profile on a simulated disk: what `ahead replay --wait` would take there'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "policies" -d 'List the policies'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "trace" -d 'Record the decisions of the kernel\'s read-ahead for a program'
complete -c ahead-lab -n "__fish_ahead_lab_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "conform" -d 'Compare a policy\'s decisions with a kernel\'s'
