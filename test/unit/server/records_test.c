/* Completion records, through records.h: their verdicts, their bounds, and a long random run beside
 * a plain model. */
#define TEST_FIXTURE setup, teardown
#define TEST_STATE   struct records *records

#include "common/base/error.h"
#include "common/base/random.h"
#include "server/shard/records.h"
#include "test/lib/unit.h"

static int setup(void **state)
{
    static struct records records;
    records = (struct records){0};
    *state = &records;
    return 0;
}

static int teardown(void **state)
{
    struct records *records = *state;
    records_fini(records);
    assert_int_equal(records_bytes(records), 0);
    return 0;
}

static void look_is(struct records *records, uint32_t client, uint32_t operation, uint32_t lowest,
                    int verdict, uint64_t version)
{
    uint64_t found = 0;
    assert_int_equal(records_look(records, client, operation, lowest, &found), verdict);
    assert_int_equal(found, version);
}

TEST(what_is_answered_is_forgotten_and_refused)
{
    for (uint32_t i = 1; i <= 4; i++) {
        look_is(records, 7, i, 1, RECORDS_FRESH, 0);
        assert_int_equal(records_add(records, 7, i, 100 + i), 0);
    }
    look_is(records, 7, 5, 4, RECORDS_FRESH, 0);
    assert_int_equal(records_count(records), 1);
    look_is(records, 7, 3, 3, RECORDS_STALE, 0);
    look_is(records, 7, 4, 1, RECORDS_DONE,
            104); /* an older request's lower bound lowers nothing */
    look_is(records, 7, 3, 1, RECORDS_STALE, 0);
    assert_int_equal(records_add(records, 7, 2, 102), 0); /* it came to its end too late */
    assert_int_equal(records_count(records), 1);
}

TEST(a_scan_brings_records_in_any_order_and_twice)
{
    assert_int_equal(records_add(records, 7, 12, 212), 0);
    assert_int_equal(records_add(records, 7, 10, 210), 0);
    assert_int_equal(records_add(records, 7, 12, 212), 0);
    /* An entry that a reconciliation left out, of an attempt before: the later one counts. */
    assert_int_equal(records_add(records, 7, 12, 112), 0);
    assert_int_equal(records_add(records, 7, 11, 211), 0);
    assert_int_equal(records_count(records), 3);
    look_is(records, 7, 10, 9, RECORDS_DONE, 210);
    look_is(records, 7, 9, 9, RECORDS_AGAIN, 0);
    look_is(records, 7, 13, 9, RECORDS_FRESH, 0);
    records_lowest(records, 7, 12);
    look_is(records, 7, 11, 9, RECORDS_STALE, 0);
    look_is(records, 7, 12, 9, RECORDS_DONE, 212);
    records_lowest(records, 99, 5); /* nobody knows it */
    assert_int_equal(records_clients(records), 1);
}

TEST(nobody_has_no_records)
{
    assert_int_equal(records_add(records, 0, 12, 212), 0);
    assert_int_equal(records_add(records, 7, 0, 212), 0);
    assert_int_equal(records_add(records, 7, UINT32_MAX, 212), 0);
    assert_int_equal(records_count(records), 0);
    assert_int_equal(records_clients(records), 0);
}

struct walk {
    uint32_t calls, client, lowest;
};

static void note(void *context, uint32_t client, uint32_t lowest)
{
    struct walk *walk = context;
    *walk = (struct walk){walk->calls + 1, client, lowest};
}

static struct walk changed(struct records *records)
{
    struct walk walk = {0};
    records_changed(records, note, &walk);
    return walk;
}

/* While the table grows and shrinks. */
TEST(a_list_tells_all_that_is_there_from_its_begin_to_its_end)
{
    enum { CLIENTS = 300, EACH = 20, ROWS = 64 };
    static bool told[CLIENTS][EACH + 1];
    struct records_cursor cursor = {0};
    struct records_row rows[ROWS];
    bool over = false;
    memset(told, 0, sizeof told);
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t j = 1; j <= EACH; j++)
            assert_int_equal(records_add(records, 1 + i, j, 100 + j), 0);
    for (unsigned call = 0; !over; call++) {
        const int count = records_list(records, &cursor, rows, ROWS, &over);
        assert_true(count >= 0 && count <= ROWS && call < 4 * CLIENTS);
        for (int i = 0; i < count; i++) {
            const struct records_row *row = &rows[i];
            assert_true(row->version == 0 || row->version == 100 + row->operation);
            told[row->client - 1][row->version ? row->operation : 0] = true;
        }
        for (uint32_t i = 2 * CLIENTS; i < 3 * CLIENTS && call == 20; i++)
            records_lowest(records, 1 + i % CLIENTS, i % CLIENTS % 4 ? EACH : 1);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_true(told[i][0] && told[i][EACH] && (i % 4 || told[i][1]));
}

TEST(a_client_of_which_a_scan_leaves_nothing_has_gone)
{
    assert_int_equal(records_add(records, 7, 5, 50), 0);
    records_found_lowest(records, 7, 5);
    assert_int_equal(records_count(records), 1);
    records_found_lowest(records, 7, 6);
    assert_int_equal(records_count(records), 0);
    assert_int_equal(records_clients(records), 0);
    /* A later entry, which may lie in another log. */
    assert_int_equal(records_add(records, 7, 8, 80), 0);
    records_found_lowest(records, 7, 6);
    look_is(records, 7, 8, 6, RECORDS_DONE, 80);
    struct walk walk = changed(records);
    assert_int_equal(walk.calls, 1);
    assert_int_equal(walk.lowest, 6);
}

/* --- bounds --- */

TEST(in_the_usual_case_memory_stays_as_it_is)
{
    enum { CLIENTS = 8, DEPTH = 64, ROUNDS = 20000 };
    uint64_t most = 0;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        for (uint32_t client = 1; client <= CLIENTS; client++) {
            look_is(records, client, i, i < DEPTH ? 1 : i - DEPTH + 1, RECORDS_FRESH, 0);
            assert_int_equal(records_add(records, client, i, i), 0);
        }
        if (i == DEPTH)
            most = records_bytes(records);
        if (i > DEPTH)
            assert_int_equal(records_bytes(records), most);
    }
    assert_int_equal(records_count(records), CLIENTS * DEPTH);
    assert_true(most < 40 * 1024);
}

/* Wherever the number of records swings, it meets the end of a chunk once at most. */
TEST(a_swing_by_one_record_does_not_allocate_each_time)
{
    for (uint32_t held = 1; held <= 600; held++) {
        look_is(records, 7, held, 1, RECORDS_FRESH, 0);
        look_is(records, 8, 2 * held, 2 * held, RECORDS_FRESH, 0);
        records_lowest(records, 8, 2 * held + 1);
        uint64_t bytes = records_bytes(records);
        look_is(records, 8, 2 * held + 1, 2 * held + 1, RECORDS_FRESH, 0);
        assert_int_equal(records_bytes(records), bytes);
        records_lowest(records, 8, 2 * held + 2);
        assert_int_equal(records_bytes(records), bytes);
    }
}

TEST(a_client_that_never_has_its_answers_meets_a_bound)
{
    uint64_t version;
    for (uint32_t i = 1; i <= RECORDS_MAX; i++) {
        assert_int_equal(records_look(records, 7, i, 1, &version), RECORDS_FRESH);
        assert_int_equal(records_add(records, 7, i, 9 + i), 0);
    }
    assert_int_equal(records_look(records, 7, RECORDS_MAX + 1, 1, &version), ROWAN_EBUSY);
    assert_int_equal(records_look(records, 8, 1, 1, &version), ROWAN_EBUSY);
    look_is(records, 7, RECORDS_MAX / 2, 1, RECORDS_DONE, 9 + RECORDS_MAX / 2);
    assert_true(records_bytes(records) <= UINT64_C(45) << 20);
    /* The refused one changed nothing: it is as fresh as it was. */
    look_is(records, 7, RECORDS_MAX + 1, 2, RECORDS_FRESH, 0);
    records_lowest(records, 7, RECORDS_MAX + 2);
    assert_int_equal(records_count(records), 0);
    assert_true(records_bytes(records) < 16 * 1024);
}

TEST(what_finds_no_space_in_a_scan_is_unknown_up_to_its_number)
{
    struct records_row rows[4];
    bool over = false;
    uint64_t version;
    for (uint32_t i = 1; i <= RECORDS_MAX; i++)
        assert_int_equal(records_add(records, 7, i, 9 + i), 0);
    assert_int_equal(records_add(records, 8, 5, 9), 0);
    look_is(records, 8, 5, 1, RECORDS_STALE, 0);
    look_is(records, 8, 4, 1, RECORDS_STALE, 0);
    assert_int_equal(records_look(records, 8, 6, 1, &version), ROWAN_EBUSY);
    records_lowest(records, 7, UINT32_MAX);
    struct records_cursor cursor = {0};
    uint32_t marks = 0;
    while (!over) {
        const int count = records_list(records, &cursor, rows, 4, &over);
        for (int i = 0; i < count; i++)
            marks +=
                rows[i].client == 8 && rows[i].operation == 5 && rows[i].version == RECORDS_UNKNOWN;
    }
    assert_int_equal(marks, 1);
    look_is(records, 8, 6, 1, RECORDS_FRESH, 0);
}

/* As a start from a checkpoint has it: the mark, and then the client's lowest unanswered number. */
TEST(a_client_with_a_mark_alone_is_not_forgotten)
{
    assert_int_equal(records_add(records, 7, 5, RECORDS_UNKNOWN), 0);
    records_found_lowest(records, 7, 3);
    look_is(records, 7, 4, 3, RECORDS_STALE, 0);
    look_is(records, 7, 6, 3, RECORDS_FRESH, 0);
}

/* A mark speaks for those of which nothing is known. */
TEST(a_mark_changes_nothing_about_what_took_effect)
{
    assert_int_equal(records_add(records, 7, 5, 1001), 0);
    assert_int_equal(records_add(records, 7, 5, RECORDS_UNKNOWN), 0);
    assert_int_equal(records_add(records, 7, 3, RECORDS_UNKNOWN), 0);
    look_is(records, 7, 4, 1, RECORDS_STALE, 0);
    look_is(records, 7, 5, 1, RECORDS_DONE, 1001);
    look_is(records, 7, 6, 1, RECORDS_FRESH, 0);
    records_lowest(records, 7, UINT32_MAX);
    look_is(records, 7, 4, 1, RECORDS_FRESH, 0); /* it came back as new */
}

TEST(ten_thousand_clients_are_known_and_forgotten)
{
    enum { CLIENTS = 10000 };
    for (uint32_t i = 1; i <= 3; i++) {
        for (uint32_t client = 1; client <= CLIENTS; client++) {
            look_is(records, client, i, 1, RECORDS_FRESH, 0);
            assert_int_equal(records_add(records, client, i, i * 100000 + client), 0);
        }
    }
    for (uint32_t client = 1; client <= CLIENTS; client++)
        look_is(records, client, 2, 1, RECORDS_DONE, 200000 + client);
    assert_int_equal(records_clients(records), CLIENTS);
    assert_true(records_bytes(records) < UINT64_C(10000) * (3 * 41 + 74) + 64 * 1024);
    for (uint32_t client = 1; client <= CLIENTS; client++)
        records_lowest(records, client, UINT32_MAX);
    assert_int_equal(changed(records).calls, CLIENTS);
    assert_true(records_bytes(records) < 16 * 1024);
}

TEST(more_clients_than_there_is_room_for_are_refused_until_some_have_gone)
{
    uint64_t version;
    for (uint32_t client = 1; client <= RECORDS_MAX_CLIENTS; client++)
        assert_int_equal(records_look(records, client, 1, 1, &version), RECORDS_FRESH);
    assert_int_equal(records_look(records, RECORDS_MAX_CLIENTS + 1, 1, 1, &version), ROWAN_EBUSY);
    assert_true(records_bytes(records) <= UINT64_C(15) << 20);
    /* Nobody was told of it yet, but the room is needed. */
    records_lowest(records, 1000, UINT32_MAX);
    assert_int_equal(records_look(records, RECORDS_MAX_CLIENTS + 1, 1, 1, &version), RECORDS_FRESH);
    assert_int_equal(records_clients(records), RECORDS_MAX_CLIENTS);
}

/* --- beside a model --- */

enum { MODEL_CLIENTS = 6, MODEL_SPAN = 4096 };

struct model_client {
    uint32_t lowest, highest, left_at; /* left_at: the number after the highest, when it had gone */
    bool known, changed;
    uint64_t versions[MODEL_SPAN]; /* by operation */
};

struct model {
    struct model_client clients[MODEL_CLIENTS];
    struct records *records;
    struct random random;
    uint64_t versions;
    uint32_t walks[MODEL_CLIENTS];
};

static uint32_t pick(struct model *model, uint32_t bound)
{
    return (uint32_t)random_below(&model->random, bound);
}

static int model_look(struct model_client *client, uint32_t operation, uint32_t lowest,
                      uint64_t *version)
{
    client->known = true;
    if (lowest > client->lowest) {
        client->lowest = lowest;
        client->changed = true;
    }
    if (operation < client->lowest)
        return RECORDS_STALE;
    bool fresh = operation > client->highest;
    if (fresh)
        client->highest = operation;
    *version = client->versions[operation];
    if (*version)
        return RECORDS_DONE;
    return fresh ? RECORDS_FRESH : RECORDS_AGAIN;
}

static void step_look(struct model *model, uint32_t number)
{
    struct model_client *client = &model->clients[number - 1];
    uint32_t base = client->lowest ? client->lowest : 1;
    uint32_t end = base > client->highest ? base : client->highest;
    uint32_t operation =
        pick(model, 3) ? client->highest + 1 + pick(model, 3) : base + pick(model, end - base + 3);
    if (pick(model, 20) == 0)
        operation = 1 + pick(model, base);
    if (operation >= MODEL_SPAN)
        return;
    uint32_t lowest = pick(model, 4) ? client->lowest : base + pick(model, 40);
    if (lowest > operation)
        lowest = operation;
    uint64_t found = 0, expected = 0;
    int verdict = model_look(client, operation, lowest, &expected);
    assert_int_equal(records_look(model->records, number, operation, lowest, &found), verdict);
    assert_int_equal(found, expected);
    if ((verdict == RECORDS_FRESH || verdict == RECORDS_AGAIN) && pick(model, 3)) {
        client->versions[operation] = ++model->versions;
        assert_int_equal(records_add(model->records, number, operation, model->versions), 0);
    }
}

/* As a scan does it. */
static void step_add(struct model *model, uint32_t number)
{
    struct model_client *client = &model->clients[number - 1];
    uint32_t operation = 1 + pick(model, client->highest + 5);
    if (operation >= MODEL_SPAN)
        return;
    uint64_t version = client->versions[operation];
    if (!version)
        version = ++model->versions;
    assert_int_equal(records_add(model->records, number, operation, version), 0);
    client->known = true;
    if (operation < client->lowest)
        return;
    client->versions[operation] = version;
    if (operation > client->highest)
        client->highest = operation;
}

static void step_lowest(struct model *model, uint32_t number)
{
    struct model_client *client = &model->clients[number - 1];
    bool gone = pick(model, 50) == 0 || client->highest > MODEL_SPAN - 10;
    uint32_t lowest = gone ? UINT32_MAX : client->lowest + pick(model, 10);
    records_lowest(model->records, number, lowest);
    if (!client->known)
        return;
    if (gone) {
        *client = (struct model_client){.changed = true, .left_at = client->highest + 1};
    } else if (lowest > client->lowest) {
        client->lowest = lowest;
        client->changed = true;
    }
}

static void told(void *context, uint32_t number, uint32_t lowest)
{
    struct model *model = context;
    struct model_client *client = &model->clients[number - 1];
    assert_true(number >= 1 && number <= MODEL_CLIENTS);
    assert_true(client->changed);
    assert_int_equal(lowest, client->known ? client->lowest : client->left_at);
    client->changed = false;
}

static void check_model(struct model *model)
{
    uint64_t needed = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < MODEL_CLIENTS; i++) {
        known += model->clients[i].known;
        for (uint32_t operation = model->clients[i].lowest; operation < MODEL_SPAN; operation++)
            needed += model->clients[i].versions[operation] != 0;
    }
    assert_int_equal(records_clients(model->records), known);
    assert_true(records_count(model->records) >= needed);
    assert_true(records_bytes(model->records) < 2 * 1024 * 1024);
    records_changed(model->records, told, model);
    for (uint32_t i = 0; i < MODEL_CLIENTS; i++)
        assert_false(model->clients[i].changed);
}

TEST(a_long_random_run_agrees_with_a_plain_model)
{
    static struct model model;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        print_message("# seed %llu\n", (unsigned long long)seed);
        memset(&model, 0, sizeof model);
        model.records = records;
        model.versions = RECORDS_UNKNOWN;
        random_init(&model.random, seed);
        for (uint32_t step = 0; step < 30000; step++) {
            uint32_t number = 1 + pick(&model, MODEL_CLIENTS);
            uint32_t kind = pick(&model, 20);
            if (kind == 0)
                step_lowest(&model, number);
            else if (kind == 1)
                step_add(&model, number);
            else
                step_look(&model, number);
            if (step % 1000 == 0)
                check_model(&model);
        }
        for (uint32_t number = 1; number <= MODEL_CLIENTS; number++)
            records_lowest(model.records, number, UINT32_MAX);
        assert_int_equal(records_count(model.records), 0);
        records_fini(model.records);
    }
}

UNIT_MAIN(NULL, NULL)
