/* lease.h - what a manager knows of its members in time: who is there, who has adopted what, and until when anybody may
 * answer clients (design, section 6, "Leases" and "Failover"). A pure part of the state (state.h).
 *
 * Times are of this manager's clock, and `now_ns` was read before the event that it comes with, perhaps long before: the
 * process may have been stopped in between. So a message that is handled at `now_ns` may have been sent later. Where that
 * would make a promise too short, the time counts that leases_tick is given next: it was read after the message was here.
 *
 * Clocks agree on nothing but their rate. Let none be off by more than r = 2^-10 (crystals are by 2^-13, and while a clock is
 * set right by 2^-11: adjtimex(2)). A lease of L by its server's clock takes at most L / (1 - r); this manager's clock
 * shows that as at most L (1 + r) / (1 - r) < L (1 + 2^-8). The millisecond more is for clocks that count in steps.
 */
#ifndef CM_LEASE_H
#define CM_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/cluster/cluster.h"
#include "common/cluster/managers.h"

enum {
    /* Without a sign for so many leases a member is silent. It renews every quarter of one, and a renewal shows that it was
     * there one renewal earlier: six in a row are lost then. Grants end after one lease without a sign. So whoever is
     * seen to be present when it is removed was so after its silence was felt. */
    LEASE_SILENT_AFTER = 2,
    /* A member that began to serve and has not adopted a configuration for so long is treated as silent. */
    LEASE_ADOPTS_WITHIN = 6,
    /* L6: if nobody is steady for so many leases after a member fell silent, it is removed all the same. */
    LEASE_STEADY_WITHIN = 6,
    /* So many spells without a sign are forgiven, until a member had none for so many leases. */
    LEASE_SPELLS = 2,
    LEASE_STEADY_AFTER = 128,
};

/* The longest time to wait after spells, whatever the length of a lease. */
#define LEASE_WAIT_MAX_NS (120 * NS_PER_S)

/* A member that this manager has not heard of yet gets so long to find the way from another manager. */
static inline uint64_t lease_first_word_ns(uint64_t lease_ns)
{
    return MANAGERS_WAY_LEASES * lease_ns + MANAGERS_WAY_NS;
}

enum lease_presence {
    LEASE_PRESENT, /* within the longest lease */
    LEASE_UNSURE,
    LEASE_SILENT,
};

/* Of a member that is not kept. */
struct lease {
    uint32_t server;
    uint64_t incarnation;
    uint64_t since_ns;    /* it has been watched since */
    uint64_t present_ns;  /* as of then it was there; 0: it has not shown so yet */
    uint64_t steady_ns;   /* it was so without a break of a lease since */
    bool answered;        /* this manager, since that began to manage */
    uint64_t answered_ns; /* it had done so by then; 0: see leases_tick */
    uint64_t granted_ns;  /* it had sent the last Renew that was granted by then; 0: none was */
    bool serves;          /* it did once: it does not start any more */
    uint64_t adopted;     /* term; 0: unknown */
    bool told;            /* its silence is logged */
    bool lapsed;          /* L5: the spell is counted */
    bool
        joins; /* added while this manager manages, named by no shard, and it has adopted nothing: nobody waits for it */
    bool
        returns; /* its server holds a shard, and had never answered this manager when it came: it may have held up the former one */
    bool left;   /* it was asked to stop, and has no lease any more: as if silent */
    uint64_t
        behind_ns; /* since then it has not adopted what is in force, or made a step to it; 0: it has */
    uint32_t cut_count, cut[CLUSTER_MAX_MEMBERS]; /* servers that its sends do not reach, it says */
};

/* All zeros, but for what is past: another manages, or there are no leases. */
struct leases {
    bool managing; /* the configuration in force names this manager */
    uint64_t lease_ns;
    uint64_t first_ns;   /* this manager began to manage */
    uint64_t first_term; /* by this configuration */
    uint64_t watched_ns; /* this process has looked without a pause since */
    uint64_t ticked_ns;  /* the last leases_tick */
    uint64_t over_ns;    /* the leases of all that were removed are over then */
    uint64_t begun_ns;   /* the change not yet committed: its silence began, or it was stored */
    uint64_t term;       /* in force */
    uint64_t committed;  /* the last term that this manager has committed; 0: none */
    uint32_t count;
    struct lease entries[CLUSTER_MAX_MEMBERS]; /* by rising server */
    struct lease_past {
        uint64_t removed; /* its last incarnation that was a member and is none any more, or kept */
        uint64_t goodbye_ns;  /* a process that is not back said that it leaves */
        uint64_t answered_ns; /* some process of it had answered this manager by then */
        uint64_t spell_ns;    /* L5: the last one */
        uint32_t spells;
    } past[CLUSTER_MAX_SERVER + 1]; /* by server, whoever managed; 0: nothing is known */
};

/* How long a lease that was granted may run, on this manager's clock. */
uint64_t lease_longest_ns(uint64_t lease_ns);

/* `config` is in force now, and `manager` is this one. It was read or stored by what was asked of the coordination service at
 * `asked_ns`. As of then a member that is added was there: it had said so, or it would not be added. And it had not gone over to
 * a later manager, because nobody had stored that one's name yet, in a configuration with this member. So grants go on while
 * it comes. */
void leases_follow(struct leases *leases, const struct cluster_config *config, uint64_t manager,
                   uint64_t asked_ns, uint64_t now_ns);

/* Before anything else that happens at `now_ns`; `before_ns` is that of the event before. If this process stood still,
 * silence counts from now on. */
void leases_pass(struct leases *leases, uint64_t before_ns, uint64_t now_ns);

/* `now_ns` was read after all that was given to this object before it. */
void leases_tick(struct leases *leases, uint64_t now_ns);

/* NULL: the server is no member, or a kept one. */
struct lease *leases_of(struct leases *leases, uint32_t server);

/* A Renew of the member came, at `now_ns` at the earliest. It knows `term`, and brings back `present_ns`, which this
 * manager said (0: nothing of that kind). */
void leases_renewed(struct leases *leases, struct lease *lease, uint64_t term, uint64_t present_ns,
                    uint64_t now_ns);

/* Says `from` of `to` that its sends there stay incomplete? */
bool leases_are_cut(const struct leases *leases, uint32_t from, uint32_t to);

/* It has adopted `term`; likewise. */
void leases_adopted(struct leases *leases, struct lease *lease, uint64_t term, uint64_t now_ns);

/* It says that it has never served. In no shard it is one that joins, whichever manager added it. */
void leases_opens(struct lease *lease, const struct cluster_config *config);

/* It says that it serves: from now on it has to adopt in time. */
void leases_serves(struct lease *lease, uint64_t now_ns);

enum lease_presence leases_presence(const struct leases *leases, const struct lease *lease,
                                    uint64_t now_ns);

/* It was there within the longest lease, whatever it has adopted. */
bool leases_renews(const struct leases *leases, const struct lease *lease, uint64_t now_ns);

/* L5. Until then a server that was removed, or is kept, again and again does not return; 0: it has had no more spells than are
 * forgiven. */
uint64_t leases_waits_until(const struct leases *leases, uint32_t server, bool kept);

/* It renews, and is silent because it has not adopted what is in force. */
bool leases_is_late(const struct leases *leases, const struct lease *lease, uint64_t now_ns);

/* This manager leads again and all have to find their way to it. */
void leases_watch_anew(struct leases *leases, uint64_t now_ns);

/* May this manager grant leases? Only while every member, but for those that join, was present within the longest lease: one that
 * has gone over to another manager stops it. `now_ns` must have been read after the Renew was here: leases_tick. */
bool leases_may_grant(const struct leases *leases, uint64_t now_ns);

/* When the configuration in force may be committed: 0 if it is, UINT64_MAX while nobody can tell. All members but those that join have adopted it
 * and no lease of a removed one runs any more. A manager that began since the last commit does not know what others
 * have granted: it waits for two of the longest leases since the last member first answered it. One for the other
 * manager to miss that member, one for its last grant to end. */
uint64_t leases_commit_at(const struct leases *leases);
bool leases_is_committed(const struct leases *leases);
void leases_committed(struct leases *leases);

/* The next time after `now_ns` at which one of these answers may change by itself, and a quarter of a lease after the last tick,
 * whatever comes in between. */
uint64_t leases_wake(const struct leases *leases, uint64_t now_ns);

#endif
