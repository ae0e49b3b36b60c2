/* What a journal keeps, hashes and tells. */
#include "test/lib/unit.h"
#include "test/sim/journal.h"

static void add(struct journal *journal, enum journal_kind kind, uint32_t key, uint32_t shard,
                const char *text)
{
    struct journal_event event = {.kind = kind, .key = key, .shard = shard};
    snprintf(event.text, sizeof event.text, "%s", text);
    journal_add(journal, &event);
}

/* The story, to be freed. */
static char *tell(const struct journal *journal, uint32_t key, uint32_t shard, uint32_t most)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    journal_tell(journal, key, shard, most, out);
    fclose(out);
    return text;
}

static unsigned lines_of(const char *text)
{
    unsigned lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

TEST(a_story_has_the_key_and_the_faults_between)
{
    struct journal *journal = journal_create(NULL, NULL);
    add(journal, JOURNAL_CALL, 7, JOURNAL_NO_SHARD, "mine");
    add(journal, JOURNAL_CALL, 8, JOURNAL_NO_SHARD, "others");
    add(journal, JOURNAL_FAULT, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "a cut");
    add(journal, JOURNAL_NETWORK, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "a handshake");
    add(journal, JOURNAL_LOG, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "promoted shard=3 by=1");
    add(journal, JOURNAL_LOG, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "promoted shard=31");
    add(journal, JOURNAL_LANDED, 7, 3, "landed");
    char *text = tell(journal, 7, 3, 100);
    assert_non_null(strstr(text, "mine"));
    assert_null(strstr(text, "others"));
    assert_non_null(strstr(text, "a cut"));
    assert_null(strstr(text, "a handshake"));
    assert_non_null(strstr(text, "promoted shard=3 by=1"));
    assert_null(strstr(text, "shard=31"));
    assert_true(strstr(text, "a cut") > strstr(text, "mine"));
    assert_true(strstr(text, "landed") > strstr(text, "a cut"));
    free(text);
    journal_destroy(journal);
}

TEST(a_long_row_of_faults_is_counted_instead_of_shown)
{
    struct journal *journal = journal_create(NULL, NULL);
    add(journal, JOURNAL_CALL, 7, JOURNAL_NO_SHARD, "asked");
    for (unsigned i = 0; i < 20; i++)
        add(journal, JOURNAL_FAULT, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "a cut");
    add(journal, JOURNAL_ANSWER, 7, JOURNAL_NO_SHARD, "told");
    char *text = tell(journal, 7, JOURNAL_NO_SHARD, 100);
    assert_int_equal(lines_of(text), 1 + 4 + 1 + 1);
    assert_non_null(strstr(text, "16 faults"));
    free(text);
    /* The same row, seen from the end, takes no more of the lines. */
    text = tell(journal, 7, JOURNAL_NO_SHARD, 6);
    assert_non_null(strstr(text, "asked"));
    free(text);
    text = tell(journal, 7, JOURNAL_NO_SHARD, 1);
    assert_null(strstr(text, "asked"));
    assert_non_null(strstr(text, "told"));
    free(text);
    journal_destroy(journal);
}

TEST(a_story_of_no_key_is_the_faults)
{
    struct journal *journal = journal_create(NULL, NULL);
    for (uint32_t i = 0; i < 20; i++)
        add(journal, i % 2 ? JOURNAL_FAULT : JOURNAL_CALL, i % 2 ? JOURNAL_NO_KEY : i,
            JOURNAL_NO_SHARD, "x");
    char *text = tell(journal, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, 100);
    assert_int_equal(lines_of(text), 10);
    free(text);
    text = tell(journal, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, 3);
    assert_int_equal(lines_of(text), 3);
    free(text);
    journal_destroy(journal);
}

static uint64_t hash_of(uint64_t at_ns, const char *node, const char *text)
{
    struct sim_clock clock;
    sim_clock_init(&clock);
    clock.now_ns += at_ns;
    struct journal *journal = journal_create(NULL, NULL);
    journal_clock(journal, &clock);
    journal_note(journal, JOURNAL_FAULT, node, "%s", text);
    journal_note(journal, JOURNAL_FAULT, node, "again");
    uint64_t hash = journal_hash(journal);
    assert_int_equal(journal_events(journal), 2);
    journal_destroy(journal);
    return hash;
}

TEST(the_hash_depends_on_what_happened_where_and_when)
{
    uint64_t hash = hash_of(0, "cm", "a cut");
    assert_true(hash == hash_of(0, "cm", "a cut"));
    assert_true(hash != hash_of(1, "cm", "a cut"));
    assert_true(hash != hash_of(0, "server-1", "a cut"));
    assert_true(hash != hash_of(0, "cm", "a stop"));
}

UNIT_MAIN(NULL, NULL)
