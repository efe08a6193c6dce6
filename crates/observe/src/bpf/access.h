/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From "these pages of this mapping" to an event about those that are new.
 *
 *     pages   60 61 62 63 | 64 … 127 | 128 129        a span is cut at every 64th page: one word of bits each
 *     seen     1  1  0  0 |  0 …  0  |  0   1         bits that are set are dropped here and now
 *     events  [62 ─────────────────────── 128]        new pages that touch become one event
 *
 * A loop over cached data thus costs two table lookups per access and no event.
 */
#ifndef AHEAD_ACCESS_H
#define AHEAD_ACCESS_H

/* The pieces of 64 pages that one event may cover: 4 GiB of 4 KiB pages. read(2) itself ends at 2 GiB. */
#define WORDS_PER_SPAN (1 << 14)

struct span {
	u64 page; /* where the walk is */
	u64 end;  /* after the last page */
	u64 first; /* of the new pages that wait to be reported */
	u64 pages;
	u32 file;
	u32 kind;
	u64 reported; /* events */
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
	/* Mostly they are set: a look is cheaper than an atomic write. */
	if ((*(volatile u64 *)bits & wanted) == wanted)
		return 0;
	return wanted & ~__sync_fetch_and_or(bits, wanted);
}

/* Marks pages of one word; gives those that were not marked before. */
static __always_inline u64 mark(u32 file, u64 page, u64 wanted, u32 kind)
{
	struct word *word = word_of(file, page);
	if (!word) {
		count(REPEATED);
		return wanted;
	}
	if (kind == ACCESS_ADDED)
		return set_bits(&word->added, wanted);
	if (kind == ACCESS_AROUND)
		return set_bits(&word->around, wanted);
	return set_bits(&word->used, wanted);
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
 * Not static: the verifier then checks it once by itself, where otherwise it would follow every round of the loop with
 * what it knows about the span.
 */
__noinline int take_word(struct span *span)
{
	if (!span)
		return 1;
	u64 page = span->page;
	if (page >= span->end)
		return 1;
	u64 wanted = mask_of(page, span->end);
	u64 new = mark(span->file, page, wanted, span->kind);
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

/* Pages that the program itself made by writing: whoever reads them later reads nothing from a disk. */
__noinline int make_word(struct span *span)
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

static long made_step(u64 step, struct span *span)
{
	return make_word(span) != 0;
}

/* Pages first to last (the last one included) were touched in this way by the current thread, which is followed. */
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
		/* A page beyond the end comes into the cache when the file is being extended. */
		struct span made = span;
		if (made.page < file_pages)
			made.page = file_pages;
		bpf_loop(WORDS_PER_SPAN, made_step, &made, 0);
	}
	/* Of a block device always: this is how metadata shows. */
	if (kind == ACCESS_ADDED && !settings.want_added && !is_device(inode))
		return;
	if (span.end > file_pages)
		span.end = file_pages;
	if (span.page >= span.end)
		return;
	if (span.end <= (span.page | 63) + 1)
		take_word(&span);
	else
		bpf_loop(WORDS_PER_SPAN, span_step, &span, 0);
	report_waiting(&span);
	/* A new name is looked for when a file is read anew from its beginning; not at each page. */
	if (!(state->flags & FILE_ANNOUNCED) || (span.reported && first == 0 && kind == ACCESS_READ))
		name_file(state, inode, alias_of(inode));
}

#endif
