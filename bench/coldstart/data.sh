#!/bin/sh
# Generates the data of the benchmark's programs; runs inside the tree. All data follows from fixed rules and fixed
# dates, so that every machine measures the same.
set -eu

date="2024-01-01T00:00:00Z"

# A repository of 20,000 files in 400 directories, 1 to 8 KiB each, which `git status` has to check.
make_repository() {
    rm -rf /srv/repository
    mkdir -p /srv/repository
    cd /srv/repository
    awk 'BEGIN {
        for (file = 0; file < 20000; file++) {
            directory = sprintf("part%02d/module%02d", file / 1000, file / 50 % 20)
            if (file % 50 == 0) system("mkdir -p " directory)
            name = sprintf("%s/source%05d.c", directory, file)
            lines = 20 + file * 7919 % 120
            for (line = 0; line < lines; line++)
                printf("int value_%d_%d(int x) { return x * %d + %d; }\n", file, line, file * 31 % 977, line) > name
            close(name)
        }
    }'
    find . -exec touch -d "$date" {} +
    git init -q -b main .
    git config gc.auto 0
    git config user.name bench
    git config user.email bench@localhost
    git add .
    GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git commit -q -m "20,000 files"
    git gc -q
    git config --global --get-all safe.directory | grep -qx /srv/repository ||
        git config --global --add safe.directory /srv/repository
}

# About 200 MB: a table of 1.45 million rows with an index over a scattered column.
make_sqlite() {
    mkdir -p /srv/sqlite
    rm -f /srv/sqlite/events.db
    sqlite3 /srv/sqlite/events.db <<'SQL'
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
INSERT INTO users SELECT i, printf('user%06d', i * 7919 % 50000), printf('city%03d', i * 31 % 500) FROM n;
CREATE TABLE events (id INTEGER PRIMARY KEY, user INTEGER NOT NULL, at INTEGER NOT NULL, what TEXT NOT NULL);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1450000)
INSERT INTO events SELECT i, i * 48271 % 50000, 1700000000 + i,
    printf('event %d of kind %d: %s', i, i * 16807 % 97, hex(printf('%020d%020d', i * 69621, i * 7919)))
FROM n;
CREATE INDEX events_by_user ON events (user, at);
CREATE INDEX users_by_name ON users (name);
ANALYZE;
SQL
}

# A cluster with one database of about 100 MB. Checksums, fixed locale, no archive: the defaults of `initdb`.
make_postgres() {
    bin=/usr/lib/postgresql/15/bin
    rm -rf /srv/postgres
    install -d -o postgres -g postgres -m 700 /srv/postgres
    setpriv --reuid postgres --regid postgres --clear-groups $bin/initdb -D /srv/postgres -E UTF8 --locale C.UTF-8 \
        >/dev/null
    # The tree has no /dev/shm: shared memory is in files.
    {
        echo "dynamic_shared_memory_type = mmap"
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '/tmp'"
    } >>/srv/postgres/postgresql.conf
    echo "CREATE DATABASE bench;" |
        setpriv --reuid postgres --regid postgres --clear-groups $bin/postgres --single -D /srv/postgres postgres >/dev/null
    setpriv --reuid postgres --regid postgres --clear-groups $bin/postgres --single -j -D /srv/postgres bench \
        >/dev/null <<'SQL'
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region int NOT NULL);

INSERT INTO customers SELECT i, 'customer ' || (i * 7919 % 40000), i % 25 FROM generate_series(1, 40000) i;

CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, at timestamp NOT NULL, note text NOT NULL);

INSERT INTO orders SELECT i, (i::bigint * 48271 % 40000) + 1, timestamp '2024-01-01' + i * interval '1 minute',
    md5(i::text) || md5((i * 3)::text) FROM generate_series(1, 600000) i;

CREATE INDEX orders_by_customer ON orders (customer);

VACUUM FREEZE ANALYZE;
SQL
}

# Sixty pages with headings, tables and lists, as flat OpenDocument text.
make_document() {
    mkdir -p /srv/document
    awk 'BEGIN {
        print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
        print "<office:document xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\""
        print " xmlns:text=\"urn:oasis:names:tc:opendocument:xmlns:text:1.0\""
        print " xmlns:table=\"urn:oasis:names:tc:opendocument:xmlns:table:1.0\""
        print " office:version=\"1.2\" office:mimetype=\"application/vnd.oasis.opendocument.text\">"
        print "<office:body><office:text>"
        for (chapter = 1; chapter <= 60; chapter++) {
            printf("<text:h text:outline-level=\"1\">Chapter %d</text:h>\n", chapter)
            for (paragraph = 1; paragraph <= 6; paragraph++) {
                printf("<text:p>")
                for (word = 0; word < 60; word++)
                    printf("word%d ", (chapter * 977 + paragraph * 131 + word * 7919) % 5000)
                print "</text:p>"
            }
            print "<table:table><table:table-column table:number-columns-repeated=\"3\"/>"
            for (row = 0; row < 5; row++) {
                printf("<table:table-row>")
                for (cell = 0; cell < 3; cell++)
                    printf("<table:table-cell><text:p>%d</text:p></table:table-cell>", chapter * row + cell)
                print "</table:table-row>"
            }
            print "</table:table>"
        }
        print "</office:text></office:body></office:document>"
    }' >/srv/document/report.fodt
}

make_repository
make_sqlite
make_postgres
make_document
