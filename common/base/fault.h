/* fault.h - fault sites and mutants, for the simulator (test/sim).
 *
 * A fault site makes something happen often that is rare in life and that the code around it must stand at
 * any time: a batch of one, memory that is refused, a role that comes late. A mutant is a deliberate
 * defect, which shows that the simulator would notice such a one: the checkers must catch each.
 *
 * Both exist only where ROWAN_SIM is defined, in the simulator's own build of the rooms. In what
 * ships each is the constant false: no code, no data, no symbol (test/checks/no_fault_sites.py).
 * Which sites fire, and when, the seed decides; nothing here is random by itself.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

/* X(NAME, "what happens") */
#define FAULT_SITES(X)                                                                             \
    X(SHORT_BATCH, "a role takes few events or steps in one poll")                                 \
    X(LATE_ROLE, "a role does nothing in this poll")                                               \
    X(EARLY_ROLL, "a log goes on to a new segment before the old one is full")                     \
    X(NO_SEGMENT, "a free segment is refused")                                                     \
    X(NO_MEMORY, "an allocation is refused")                                                       \
    X(NO_ROOM, "a table or queue says that it is full")                                            \
    X(BLOCK_LOST,                                                                                  \
      "a digest role takes a whole block that commit versions tell of for a damaged one")

/* X(NAME, "name on the command line", "what it does wrong") */
#define MUTANTS(X)                                                                                 \
    X(REPLY_EARLY, "reply-early", "a write is answered before its last backup has it")             \
    X(INDEX_EARLY, "index-early", "the index has a write before it has landed everywhere")         \
    X(LOG_UNFENCED, "log-unfenced", "a write is answered before the t-log's fence is done")        \
    X(LANDING_UNFENCED, "landing-unfenced", "blocks are said to have landed before their fence")   \
    X(SLOT_SKIPPED, "slot-skipped",                                                                \
      "the scan of an open segment of slots does not wait in front of an empty one")               \
    X(SCAN_UNCHECKED, "scan-unchecked", "a scan takes blocks without looking at their checksums")  \
    X(CHECKSUM_UNSEEDED, "checksum-unseeded", "checksums do not depend on the cluster's secret")   \
    X(ORDER_IGNORED, "order-ignored", "an older version replaces a newer one in the index")        \
    X(EPOCH_KEPT, "epoch-kept", "a cold start raises no epochs")                                   \
    X(BLOCKS_UNCOUNTED, "blocks-uncounted", "an entry is joined before its last block is there")   \
    X(COMMIT_HIGHEST, "commit-highest",                                                            \
      "the highest completed version is spread as commit version")                                 \
    X(UNION_DROPS, "union-drops", "the union drops what only a backup has")                        \
    X(FETCH_SKIPPED, "fetch-skipped", "a committed version that is missing is not fetched")        \
    X(LAST_SKIPPED, "last-skipped", "a digest role skips the last entry of a segment")             \
    X(VOID_REUSED, "void-reused", "a segment is used again though somebody may store into it")     \
    X(RETRY_TWICE, "retry-twice", "a retry is carried out again")                                  \
    X(JUDGED_EARLY, "judged-early", "a conditional put is judged while its key is written")        \
    X(RECORDS_DROPPED, "records-dropped", "a start rebuilds no completion records")                \
    X(WIPE_SKIPPED, "wipe-skipped", "a start takes stale segments for free ones")                  \
    X(UNION_HASTY, "union-hasty", "a shard is served before its union has landed")                 \
    X(ANSWER_BELIEVED, "answer-believed", "an unknown compare-and-set is taken for one that won")  \
    X(SERVED_EARLY, "served-early", "reads are served while a shard's replicas are united")        \
    X(RECORD_EARLY, "record-early", "the record of the lowest unanswered operation is dropped")    \
    X(RESEND_SHORT, "resend-short", "of a shard's writes in flight the first is sent again only")  \
    X(COMMIT_FORGOTTEN, "commit-forgotten", "a backup that was not told commit versions never is") \
    X(COPIES_FORGOTTEN, "copies-forgotten", "each start copies long entries again")                \
    X(TAKE_OVER_SKIPPED, "take-over-skipped", "a retry of a write under way is never answered")    \
    X(RECORDS_KEPT, "records-kept", "no completion record is ever forgotten")                      \
    X(MESSAGE_KEPT, "message-kept", "the message of a write that must not wait is never released") \
    X(SEAT_LEFT, "seat-left", "a client is forgotten because an older connection of it has ended") \
    X(LOOK_FORGOTTEN, "look-forgotten",                                                            \
      "a digest role does not ask for the time of its next look")                                  \
    X(GAP_FORGOTTEN, "gap-forgotten", "a digest role never looks again at what it passed over")    \
    X(WAKE_FORGOTTEN, "wake-forgotten", "digest roles are not woken when a segment is sealed")

#define FAULT_ENUM(name, text)          FAULT_##name,
#define MUTANT_ENUM(name, option, text) MUTANT_##name,

enum fault_site { FAULT_SITES(FAULT_ENUM) FAULT_SITE_COUNT };
enum mutant { MUTANTS(MUTANT_ENUM) MUTANT_COUNT };

#ifdef ROWAN_SIM
bool fault_fires(enum fault_site site);
bool mutant_is_on(enum mutant mutant);
#define FAULT(name)  fault_fires(FAULT_##name)
#define MUTANT(name) mutant_is_on(MUTANT_##name)
#else
#define FAULT(name)  ((void)FAULT_##name, false)
#define MUTANT(name) ((void)MUTANT_##name, false)
#endif

#endif
