/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Converts "these pages of this mapping" to an event about the new ones.
 *
 *     pages   60 61 62 63 | 64 … 127 | 128 129        a span is split at every 64th page: one word of bits each
 *     seen     1  1  0  0 |  0 …  0  |  0   1         pages whose bits are set are dropped here
 *     events  [62 ─────────────────────── 128]        adjacent new pages become one event
 *
 * A loop over cached data thus costs two table lookups per access and no event.
 */
#ifndef AHEAD_ACCESS_H
#define AHEAD_ACCESS_H

/* Number of words that one event may cover: 4 GiB of 4 KiB pages. read(2) is limited to 2 GiB. */
#define WORDS_PER_SPAN (1 << 14)

struct span {
	u64 page; /* current position */
	u64 end;  /* after the last page */
	u64 first; /* first of the new pages that are not reported yet */
	u64 pages;
	u32 file;
	u32 kind;
	u64 reported; /* number of events */
	u64 known; /* the used pages of the last word, by bit */
};

static __always_inline void report(struct span *span, u64 first, u64 mask, u64 pages)
{
	span->reported++;
	struct access_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(LOSS_RING);
		return;
	}
	fill_head(&event->head, EVENT_ACCESS);
	event->tid = bpf_get_current_pid_tgid();
	event->file = span->file;
	event->first_page = first;
	event->mask = mask;
	event->pages = pages;
	event->kind = span->kind;
	bpf_ringbuf_submit(event, wakeup(false));
}

static __always_inline void report_waiting(struct span *span)
{
	if (span->pages)
		report(span, span->first, 0, span->pages);
	span->pages = 0;
}

static __always_inline struct word *word_of(u32 file, u64 page)
{
	struct word_key key = { .word = page >> 6, .file = file };
	struct word *word = bpf_map_lookup_elem(&words, &key);
	if (word)
		return word;
	struct word none = {};
	bpf_map_update_elem(&words, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&words, &key);
}

static __always_inline u64 set_bits(u64 *bits, u64 wanted)
{
	/* Mostly they are set: reading is cheaper than an atomic write. */
	if ((*(volatile u64 *)bits & wanted) == wanted)
		return 0;
	return wanted & ~__sync_fetch_and_or(bits, wanted);
}

/* Marks pages of one word, and returns the newly marked ones. */
static __always_inline u64 mark(struct span *span, u64 page, u64 wanted)
{
	struct word *word = word_of(span->file, page);
	if (!word) {
		count(REPEATED);
		return wanted;
	}
	if (span->kind == ACCESS_ADDED)
		return set_bits(&word->added, wanted);
	if (span->kind == ACCESS_AROUND)
		return set_bits(&word->around, wanted);
	u64 new = set_bits(&word->used, wanted);
	span->known = *(volatile u64 *)&word->used;
	return new;
}

static __always_inline u64 mask_of(u64 page, u64 end)
{
	u32 from = page & 63;
	u64 count = end - page;
	if (count >= 64 - from)
		return ~0ULL << from;
	return ((1ULL << (count & 63)) - 1) << from;
}

/*
 * Not static: then the verifier checks this function once, instead of following every iteration of the loop with its knowledge
 * about the span.
 */
__noinline int take_word(struct span *span)
{
	if (!span)
		return 1;
	u64 page = span->page;
	if (page >= span->end)
		return 1;
	u64 wanted = mask_of(page, span->end);
	u64 new = mark(span, page, wanted);
	u64 next = (page | 63) + 1;
	if (next > span->end)
		next = span->end;
	span->page = next;
	if (new == wanted) {
		if (!span->pages)
			span->first = page;
		span->pages += next - page;
		return 0;
	}
	report_waiting(span);
	if (new)
		report(span, page & ~63ULL, new, 0);
	return 0;
}

static long span_step(u64 step, struct span *span)
{
	return take_word(span) != 0;
}

/* Marks pages that the program has written: reading them later reads nothing from a disk. */
__noinline int mark_written_word(struct span *span)
{
	if (!span)
		return 1;
	u64 page = span->page;
	if (page >= span->end)
		return 1;
	struct word *word = word_of(span->file, page);
	u64 wanted = mask_of(page, span->end);
	if (word) {
		set_bits(&word->used, wanted);
		set_bits(&word->around, wanted);
		set_bits(&word->added, wanted);
	}
	span->page = (page | 63) + 1;
	return 0;
}

static long written_step(u64 step, struct span *span)
{
	return mark_written_word(span) != 0;
}

/* The current thread, which is followed, has touched the pages first to last (inclusive). */
static __always_inline void touch(struct inode *inode, u64 first, u64 last, u32 kind)
{
	struct file_state *state = state_of(inode);
	if (!state)
		return;
	if (state->flags & FILE_IGNORED) {
		name_file(state, inode, 0);
		return;
	}
	u64 size = BPF_CORE_READ(inode, i_size);
	u64 file_pages = (size + (1ULL << settings.page_shift) - 1) >> settings.page_shift;
	struct span span = { .page = first, .end = last + 1, .file = state->id, .kind = kind };
	if (kind == ACCESS_ADDED && span.end > file_pages) {
			/* A page beyond the end is added to the cache when the file is extended. */
		struct span written = span;
		if (written.page < file_pages)
			written.page = file_pages;
		bpf_loop(WORDS_PER_SPAN, written_step, &written, 0);
	}
	/* Pages of block devices are always reported: they are metadata. */
	if (kind == ACCESS_ADDED && !settings.want_added && !is_device(inode))
		return;
	if (span.end > file_pages)
		span.end = file_pages;
	if (span.page >= span.end)
		return;
	bool is_one_word = span.end <= (span.page | 63) + 1;
	if (is_one_word)
		take_word(&span);
	else
		bpf_loop(WORDS_PER_SPAN, span_step, &span, 0);
	report_waiting(&span);
	/* A new name is searched when a file is read again from its beginning, not for each page. */
	if (!(state->flags & FILE_ANNOUNCED) || (span.reported && first == 0 && kind == ACCESS_READ))
		name_file(state, inode, alias_of(inode));
	if (kind == ACCESS_READ && is_one_word && state->flags & FILE_ANNOUNCED)
		remember_pages(inode, first >> 6, span.known);
}

#endif
