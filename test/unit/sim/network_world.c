/* Three processes on a simulated network. */
#include "test/unit/sim/network_world.h"
#include "test/lib/asserts.h"

enum { SOURCE = NW_SEGMENTS * NW_SEGMENT, PM_BYTES = SOURCE + 256 * NW_BLOCK };

const char *nw_address(uint32_t process)
{
    static const char *const NAMES[NW_PROCESSES] = {"sim:a", "sim:b", "sim:c"};
    return NAMES[process];
}

void nw_open(struct network_world *world, struct sim_network_options options)
{
    fabric_segment_bytes = NW_SEGMENT;
    *world = (struct network_world){.network = NULL};
    sim_clock_init(&world->clock);
    world->journal = journal_create(&world->clock, NULL);
    options.clock = &world->clock;
    options.journal = world->journal;
    options.seed = options.seed ? options.seed : 1;
    options.max_delay_ns = options.max_delay_ns ? options.max_delay_ns : NW_DELAY_NS;
    options.max_delay_ns = options.max_delay_ns == 1 ? 0 : options.max_delay_ns;
    world->network = sim_network_create(&options);
    for (uint32_t i = 0; i < NW_PROCESSES; i++) {
        struct nw_process *process = &world->processes[i];
        assert_int_equal(sim_fabric_open(world->network, nw_address(i), &process->fabric), 0);
        process->pm = sim_pm_create(&world->clock, PM_BYTES, 0);
        assert_int_equal(fabric_register(process->fabric, &process->pm->pm), 0);
        assert_int_equal(fabric_endpoint_open(process->fabric, 0, &process->endpoint), 0);
    }
    struct nw_process *a = &world->processes[0];
    assert_int_equal(fabric_zone_open(a->endpoint, &a->pm->pm, NW_SEGMENTS, &a->zone), 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(fabric_zone_post(a->zone, (uint64_t)i * NW_SEGMENT, i), 0);
}

void nw_kill(struct network_world *world, uint32_t number)
{
    struct nw_process *process = &world->processes[number];
    fabric_endpoint_close(process->endpoint);
    fabric_close(process->fabric);
    process->endpoint = NULL;
    process->fabric = NULL;
    process->zone = NULL;
}

void nw_close(struct network_world *world)
{
    for (uint32_t i = 0; i < NW_PROCESSES; i++) {
        nw_kill(world, i);
        pm_close(&world->processes[i].pm->pm);
    }
    sim_network_destroy(world->network);
    journal_destroy(world->journal);
}

void nw_round(struct network_world *world)
{
    for (uint32_t i = 0; i < NW_PROCESSES; i++) {
        struct nw_process *process = &world->processes[i];
        if (process->stopped || !process->endpoint)
            continue;
        uint32_t room = NW_EVENTS - process->event_count;
        assert_true(room > 0);
        unsigned count = fabric_poll(process->endpoint, world->clock.now_ns,
                                     process->events + process->event_count, room);
        for (; count > 0; count--)
            process->at_ns[process->event_count++] = world->clock.now_ns;
        fabric_flush(process->endpoint);
    }
}

void nw_run(struct network_world *world, uint64_t ns)
{
    const uint64_t end_ns = world->clock.now_ns + ns;
    for (;;) {
        uint64_t progress = sim_network_progress(world->network);
        nw_round(world);
        if (sim_network_progress(world->network) != progress)
            continue;
        if (world->clock.now_ns == end_ns)
            return;
        uint64_t next_ns = sim_network_next_ns(world->network);
        world->clock.now_ns = next_ns < end_ns ? next_ns : end_ns;
    }
}

void nw_connect(struct network_world *world, uint32_t from, uint32_t to,
                struct fabric_conn **active, struct fabric_conn **passive)
{
    uint32_t accepted = nw_count(world, to, FABRIC_ACCEPTED);
    assert_int_equal(fabric_connect(world->processes[from].endpoint, nw_address(to), 0, 7, active),
                     0);
    nw_run(world, 4 * NW_DELAY_NS);
    uint32_t at = nw_find(world, to, FABRIC_ACCEPTED, accepted);
    *passive = world->processes[to].events[at].conn;
    assert_true(nw_count(world, from, FABRIC_CONNECTED) > 0);
}

void nw_send_blocks(struct network_world *world, uint32_t from, struct fabric_conn *conn,
                    uint8_t mark, uint32_t count)
{
    struct nw_process *process = &world->processes[from];
    uint8_t block[NW_BLOCK];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = SOURCE + (uint64_t)(uint8_t)(mark + i) * NW_BLOCK;
        memset(block, (int)(mark + i), sizeof block);
        pm_store(&process->pm->pm, at, block, sizeof block);
        assert_int_equal(fabric_rowan_add(conn, pm_at(&process->pm->pm, at), NW_BLOCK), 0);
    }
    assert_int_equal(fabric_rowan_post(conn, mark), 0);
    fabric_flush(process->endpoint);
}

void nw_send(struct network_world *world, uint32_t from, struct fabric_conn *conn, uint8_t byte)
{
    const struct fabric_iov iov = {.data = &byte, .bytes = 1};
    assert_int_equal(fabric_send(conn, &iov, 1), 0);
    fabric_flush(world->processes[from].endpoint);
}

uint32_t nw_count(const struct network_world *world, uint32_t process, enum fabric_event_kind kind)
{
    const struct nw_process *at = &world->processes[process];
    uint32_t count = 0;
    for (uint32_t i = 0; i < at->event_count; i++)
        count += at->events[i].kind == kind;
    return count;
}

uint32_t nw_find(const struct network_world *world, uint32_t process, enum fabric_event_kind kind,
                 uint32_t nth)
{
    const struct nw_process *at = &world->processes[process];
    for (uint32_t i = 0; i < at->event_count; i++) {
        if (at->events[i].kind == kind && nth-- == 0)
            return i;
    }
    fail_msg("process %u had no such event of kind %d", process, (int)kind);
    return 0;
}

uint32_t nw_run_of(const struct network_world *world, uint64_t offset, uint8_t byte)
{
    const uint8_t *at = world->processes[0].pm->pm.base + offset;
    uint32_t count = 0;
    while (offset + count < SOURCE && at[count] == byte)
        count++;
    return count;
}

uint32_t nw_landed(const struct network_world *world, uint64_t offset, uint8_t mark)
{
    uint32_t count = 0;
    while (nw_run_of(world, offset + count * NW_BLOCK, (uint8_t)(mark + count)) == NW_BLOCK)
        count++;
    return count;
}
