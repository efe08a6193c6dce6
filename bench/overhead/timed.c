/* Runs a command and writes how long it took, from just before its exec to its exit, nanoseconds, to a file:
 *
 *     timed FILE COMMAND...
 *
 * Timed from inside, a recorded run and a plain one are measured alike, set-up apart. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: timed FILE COMMAND...\n");
        return 2;
    }
    long long start = now_ns();
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("timed");
        return 1;
    }
    long long took = now_ns() - start;
    FILE *file = fopen(argv[1], "w");
    if (!file || fprintf(file, "%lld\n", took) < 0 || fclose(file) != 0) {
        perror(argv[1]);
        return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
