/* Starts itself N times, one after the other, and prints how long each start took, from vfork to the end, microseconds:
 *
 *     execs N */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    if (argc < 2) return 0;
    for (int left = atoi(argv[1]); left > 0; left--) {
        double began = now_us();
        pid_t child = vfork();
        if (child == 0) {
            execl(argv[0], argv[0], (char *)0);
            _exit(127);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            perror("execs");
            return 1;
        }
        printf("%.1f\n", now_us() - began);
    }
    return 0;
}
