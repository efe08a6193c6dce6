/* Reads a file of FILE_MIB MiB, which is in the page cache, in calls of 4 KiB, again and again:
 *
 *     read-loop FILE TIMES
 *
 * The hardest case for an observer of every read: there is nothing else to do. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: read-loop FILE TIMES\n");
        return 2;
    }
    int file = open(argv[1], O_RDONLY);
    if (file < 0) {
        perror(argv[1]);
        return 1;
    }
    static char page[4096];
    for (long times = atol(argv[2]); times > 0; times--) {
        ssize_t got;
        for (off_t at = 0; (got = pread(file, page, sizeof page, at)) > 0; at += got) {
        }
        if (got < 0) {
            perror(argv[1]);
            return 1;
        }
    }
    return 0;
}
