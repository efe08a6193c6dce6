/*
 * checksum FILE ...
 *
 * Prints for each file what cksum(1) prints: the CRC of POSIX, the number of bytes, the name. The file is read with read-ahead: the disk
 * works while the program computes.
 */
#include <ahead.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of one read: larger ones do not fit into the cache of a processor. */
enum { BUFFER_BYTES = 256 * 1024 };

/* The polynomial of POSIX cksum, the highest coefficient first. */
static const uint32_t POLYNOMIAL = 0x04c11db7;

static uint32_t table[256];

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte << 24;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x80000000 ? crc << 1 ^ POLYNOMIAL : crc << 1;
        table[byte] = crc;
    }
}

static uint32_t add(uint32_t crc, unsigned char byte)
{
    return crc << 8 ^ table[crc >> 24 ^ byte];
}

/* Returns 0, or the negative errno of a read. */
static int checksum(ahead_reader *reader, uint32_t *crc, uint64_t *bytes)
{
    static unsigned char buffer[BUFFER_BYTES];
    ssize_t length;

    *crc = 0;
    *bytes = 0;
    while ((length = ahead_reader_read(reader, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < length; at++)
            *crc = add(*crc, buffer[at]);
        *bytes += (uint64_t)length;
    }
    for (uint64_t rest = *bytes; rest > 0; rest >>= 8)
        *crc = add(*crc, (unsigned char)(rest & 0xff));
    *crc = ~*crc;
    return (int)length;
}

static int print_checksum(const char *path)
{
    ahead_reader_options options = {.size = sizeof options, .pattern = AHEAD_SEQUENTIAL};
    ahead_reader *reader;
    uint32_t crc = 0;
    uint64_t bytes = 0;

    int error = ahead_reader_open(path, &options, &reader);
    if (error == 0)
        error = checksum(reader, &crc, &bytes);
    ahead_reader_close(reader);
    if (error < 0) {
        fprintf(stderr, "checksum: %s: %s\n", path, strerror(-error));
        return 1;
    }
    printf("%lu %llu %s\n", (unsigned long)crc, (unsigned long long)bytes, path);
    return 0;
}

int main(int argc, char **argv)
{
    int status = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: checksum FILE ...\n");
        return 2;
    }
    make_table();
    for (int at = 1; at < argc; at++)
        status |= print_checksum(argv[at]);
    return status;
}
