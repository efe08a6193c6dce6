/*
 * prefetch_list <LIST
 *
 * Reads the files whose paths are on standard input, one on each line, and prints how many bytes and lines they have. While one file is
 * read, those after it are read ahead. Files that cannot be read are reported, and the status is 1.
 */
#define _POSIX_C_SOURCE 200809L
#include <ahead.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    unsigned long long files, bytes, lines;
};

/* Gives the path on the next line. The key is the same string: main frees it. */
static int next_path(void *context, ahead_item *item)
{
    FILE *list = context;
    char *line = NULL;
    size_t size = 0;

    errno = 0;
    ssize_t length = getline(&line, &size, list);
    if (length < 0) {
        int error = errno;
        free(line);
        return ferror(list) ? -error : 0;
    }
    line[strcspn(line, "\n")] = '\0';
    item->path = line;
    item->key = line;
    return 1;
}

static int add_file(const char *path, struct sums *sums)
{
    static char buffer[64 * 1024];
    FILE *file = fopen(path, "r");
    size_t length;

    if (file == NULL) {
        fprintf(stderr, "prefetch_list: %s: %s\n", path, strerror(errno));
        return 1;
    }
    while ((length = fread(buffer, 1, sizeof buffer, file)) > 0) {
        sums->bytes += length;
        for (size_t at = 0; at < length; at++)
            sums->lines += buffer[at] == '\n';
    }
    int is_failed = ferror(file);
    fclose(file);
    sums->files++;
    return is_failed ? 1 : 0;
}

int main(void)
{
    struct sums sums = {0, 0, 0};
    ahead_prefetcher *prefetcher;
    void *path;
    int taken, status = 0;

    int error = ahead_prefetcher_new(next_path, stdin, NULL, &prefetcher);
    if (error < 0) {
        fprintf(stderr, "prefetch_list: %s\n", strerror(-error));
        return 1;
    }
    while ((taken = ahead_prefetcher_next(prefetcher, &path)) > 0) {
        status |= add_file(path, &sums);
        free(path);
    }
    if (taken < 0) {
        fprintf(stderr, "prefetch_list: standard input: %s\n", strerror(-taken));
        status = 1;
    }
    ahead_prefetcher_free(prefetcher);
    printf("%llu files, %llu bytes, %llu lines\n", sums.files, sums.bytes, sums.lines);
    return status;
}
