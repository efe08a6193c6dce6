/*
 * grep_map TEXT FILE
 *
 * Prints the lines of a file that contain the text, as grep -F prints them. The file is mapped, and read ahead while it is searched.
 * Status: 0 if a line was found, 1 if none, 2 after an error.
 */
#define _GNU_SOURCE
#include <ahead.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *what, int error)
{
    fprintf(stderr, "grep_map: %s: %s\n", what, strerror(error));
    return 2;
}

/* Returns whether a line has the text. */
static int print_lines(const char *begin, size_t length, const char *text)
{
    const char *at = begin, *end = begin + length, *found;
    size_t text_length = strlen(text);
    int is_found = 0;

    while (at < end && (found = memmem(at, (size_t)(end - at), text, text_length)) != NULL) {
        const char *before = memrchr(at, '\n', (size_t)(found - at));
        const char *line = before == NULL ? at : before + 1;
        const char *line_end = memchr(found, '\n', (size_t)(end - found));

        if (line_end == NULL)
            line_end = end;
        fwrite(line, 1, (size_t)(line_end - line), stdout);
        putchar('\n');
        is_found = 1;
        at = line_end + 1;
    }
    return is_found;
}

static int search(const char *text, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return fail(path, errno);
    if (status.st_size == 0)
        return 1;
    size_t length = (size_t)status.st_size;
    char *file = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return fail(path, errno);
    close(fd);

    ahead_advised *advised;
    int error = ahead_advise(file, length, AHEAD_SEQUENTIAL, 0, &advised);
    /* The search goes on without: read-ahead changes only how long it takes. */
    if (error < 0)
        fail("ahead_advise", -error);
    int is_found = print_lines(file, length, text);
    ahead_advised_free(advised);
    munmap(file, length);
    return is_found ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: grep_map TEXT FILE\n");
        return 2;
    }
    return search(argv[1], argv[2]);
}
