/* A server that the system refuses memory: it says so, is not ready, and with leases ends in the end.
 *
 * Invariants:
 *  M5  Who gets no small piece of memory for the length of a lease, and for a second, ends, and so gives up what it leads: it can
 *      answer hardly anything, while it still seems to be there to everybody else. A larger piece that is refused costs only
 *      speed. On verbs leases are 10 ms, and a shortage so short is over before others would serve what it leads.
 */
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/control/control_state.h"

enum { MEMORY_LOOKS = 8 }; /* in that time */

#define MEMORY_LOG_NS (10 * NS_PER_S)
#define MEMORY_MIN_NS NS_PER_S

static void tell_refused(struct control *control, uint64_t refused)
{
    struct control_memory *memory = &control->memory;
    if (refused == memory->refused ||
        (memory->told_ns && control->now_ns < memory->told_ns + MEMORY_LOG_NS))
        return;
    log_event(LOG_ERROR, "memory_refused",
              "requests=%lu detail=\"the system gives this process no memory: look at its limits "
              "(ulimit -v, "
              "LimitAS and MemoryMax of its unit) and at the memory of the host\"",
              refused - memory->refused);
    memory->refused = refused;
    memory->told_ns = control->now_ns;
}

void control_memory_poll(struct control *control, uint64_t *wake_ns)
{
    struct control_memory *memory = &control->memory;
    const struct cluster_config *config = control_config_known(control);
    tell_refused(control, memory_refused());
    if (memory_short())
        memory_try();
    if (!memory_short()) {
        memory->since_ns = 0;
        return;
    }
    if (memory->since_ns == 0)
        memory->since_ns = control->now_ns;
    if (!config || config->lease_ms == 0)
        return;
    const uint64_t lease_ns = config->lease_ms * NS_PER_MS,
                   wait_ns = lease_ns > MEMORY_MIN_NS ? lease_ns : MEMORY_MIN_NS;
    if (control->now_ns >= memory->since_ns + wait_ns) /* M5 */
        server_fail(control->common, ROWAN_ENOMEM,
                    "the system has given this server no memory for the length of a lease, and for "
                    "a second: it "
                    "leaves its shards to "
                    "others; give it more (ulimit -v, LimitAS and MemoryMax of its unit, the "
                    "host), then start it again");
    wake_at(wake_ns, control->now_ns + wait_ns / MEMORY_LOOKS);
}

bool control_memory_is_short(const struct control *control)
{
    const struct control_memory *memory = &control->memory;
    return memory->since_ns || memory_refused() != memory->refused ||
           (memory->told_ns && control->now_ns < memory->told_ns + MEMORY_LOG_NS);
}
