/* Counts words: small, with the headers a small program has. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    long words = 0;
    int in_word = 0;
    for (int c = getchar(); c != EOF; c = getchar()) {
        if (isspace(c)) {
            in_word = 0;
        } else if (!in_word) {
            in_word = 1;
            words++;
        }
    }
    printf("%ld words, logarithm %.2f\n", words, log((double)words + 1.0));
    return ferror(stdin) ? EXIT_FAILURE : EXIT_SUCCESS;
}
