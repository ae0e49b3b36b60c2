/* verbs_packet.c - datagrams: one UD queue pair for all connections of an endpoint, a ring of receive
 * buffers, and the heads of what is sent.
 *
 * 1. A receive buffer is posted, idle (to be posted by the next push), or holds a message of a connection.
 *    At most PACKET_IN_PLACE hold messages: the ring never runs empty because owners keep what they got.
 * 2. posted - completed <= sends, so the send queue never overflows: the last of each chain is signalled,
 *    and its completion stands for all before it. A head's place is the send's place in the queue.
 * 3. A datagram of an unknown connection, token or queue pair is dropped without a word: networks duplicate,
 *    and peers that are gone leave packets behind.
 * 4. A queue pair that failed is replaced when the completion queue is empty, by one of another number: its
 *    completions name the same buffers, and some, or the device's word of the failure, may come later still.
 *    Until it is gone the device may read what was posted, so `completed` stands still.
 * 5. When the completion queue or the device itself has failed, nothing is replaced: it is the endpoint that has
 *    failed, for good. Its queue pair is destroyed, so that nothing is read or written any more.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_pair.h"
#include "common/fabric/verbs/verbs_stream.h"

enum { IDLE_POSTED = 32, KEY_BITS = 0x7fffffff };

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "heads are sent as they lie in memory");

uint32_t verbs_packets_places(const struct verbs_device *device)
{
    const int most = device->attributes.orig_attr.max_qp_wr;

    return verbs_at_most(PACKET_SENDS, most) + verbs_at_most(PACKET_RECEIVES, most);
}

/* --- the queue pair --- */

static int create_pair(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;
    const struct verbs_device *device = endpoint->device;
    struct ibv_qp_init_attr init = {.qp_context = endpoint,
                                    .send_cq = endpoint->cq,
                                    .recv_cq = endpoint->cq,
                                    .qp_type = IBV_QPT_UD,
                                    .cap = {.max_send_wr = packets->sends,
                                            .max_recv_wr = packets->receives,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 1,
                                            .max_inline_data = device->max_inline_bytes}};

    packets->qp = ibv_create_qp(device->pd, &init);
    if (packets->qp)
        return 0;
    return verbs_refused("ud_queue_pair", errno);
}

/* 4 */
static void destroy_pair(struct verbs_packets *packets, struct ibv_qp *qp)
{
    verbs_pair_destroy(qp);
    packets->completed = packets->posted;
}

static int make_ready(struct verbs_endpoint *endpoint)
{
    struct ibv_qp *qp = endpoint->packets->qp;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = endpoint->device->port,
                                     .qkey = endpoint->packets->key};
    int error = ibv_modify_qp(qp, &attributes,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR};
    if (!error)
        error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
    attributes.qp_state = IBV_QPS_RTS;
    if (!error)
        error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (error)
        log_event(LOG_ERROR, "verbs_refused", "what=ud_ready reason=\"%s\"", strerror(error));
    return error ? ROWAN_EUNSUPPORTED : 0;
}

static int make_buffers(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;
    int error;

    packets->idle = calloc(packets->receives, sizeof *packets->idle);
    packets->held = calloc(packets->receives, sizeof *packets->held);
    if (!packets->idle || !packets->held)
        return ROWAN_ENOMEM;
    error = verbs_buffer_open(endpoint->device, (uint64_t)packets->receives * packets->stride,
                              &packets->ring);
    if (!error)
        error = verbs_buffer_open(endpoint->device,
                                  (uint64_t)packets->sends * sizeof(struct packet_head),
                                  &packets->heads);
    return error;
}

static void idle_all(struct verbs_packets *packets)
{
    packets->idle_count = 0;
    for (uint32_t i = 0; i < packets->receives; i++) {
        if (!packets->held[i].data)
            packets->idle[packets->idle_count++] = i;
    }
}

int verbs_packets_open(struct verbs_endpoint *endpoint)
{
    const struct verbs_device *device = endpoint->device;
    struct verbs_packets *packets = calloc(1, sizeof *packets);
    int error;

    if (!packets)
        return ROWAN_ENOMEM;
    endpoint->packets = packets;
    packets->sends = verbs_at_most(PACKET_SENDS, device->attributes.orig_attr.max_qp_wr);
    packets->receives = verbs_at_most(PACKET_RECEIVES, device->attributes.orig_attr.max_qp_wr);
    packets->stride = (PACKET_GRH_BYTES + device->mtu_bytes + 63) / 64 * 64;
    random_entropy(&packets->key, sizeof packets->key);
    packets->key &= KEY_BITS;
    error = make_buffers(endpoint);
    if (!error)
        error = create_pair(endpoint);
    if (!error)
        error = make_ready(endpoint);
    if (error)
        return error;
    idle_all(packets);
    verbs_packets_push(endpoint);
    return packets->failed ? ROWAN_EUNSUPPORTED : 0;
}

void verbs_packets_stop(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;

    destroy_pair(packets, packets->qp);
    packets->qp = NULL;
    packets->failed = true;
    packets->chained = 0;
}

void verbs_packets_close(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;

    if (!packets)
        return;
    verbs_packets_stop(endpoint);
    verbs_buffer_close(&packets->ring);
    verbs_buffer_close(&packets->heads);
    free(packets->idle);
    free(packets->held);
    free(packets);
}

/* --- failure --- */

static void break_all(struct verbs_endpoint *endpoint, int error)
{
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_ALL)) {
        conn_break(&conn->base, error, true);
    }
}

void verbs_packets_fail(struct verbs_endpoint *endpoint, const char *reason)
{
    struct verbs_packets *packets = endpoint->packets;

    if (packets->failed)
        return;
    packets->failed = true;
    packets->chained = 0;
    log_event(LOG_ERROR, "verbs_datagrams_failed", "endpoint=%u reason=\"%s\"",
              endpoint->base.index, reason);
    break_all(endpoint, ROWAN_ECLOSED);
}

/* 5 */
void verbs_endpoint_fail(struct verbs_endpoint *endpoint, const char *reason)
{
    if (endpoint->base.base.error)
        return;
    endpoint->base.base.error = ROWAN_EIO;
    log_event(LOG_ERROR, "verbs_failed",
              "endpoint=%u what=\"the RDMA device %s has failed: %s\" mend=\"rdma link; dmesg "
              "| tail; when the device works again, start this process anew\"",
              endpoint->base.index, verbs_device_name(endpoint->device), reason);
    verbs_packets_stop(endpoint);
    break_all(endpoint, ROWAN_EIO);
}

/* 4 */
void verbs_packets_renew(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;
    struct ibv_qp *former = packets->qp;

    if (endpoint->base.base.error) /* 5 */
        return;
    if (create_pair(endpoint) != 0) {
        packets->qp = former;
        verbs_endpoint_fail(endpoint, "it gives no queue pair for datagrams any more");
        return;
    }
    destroy_pair(packets, former);
    if (make_ready(endpoint) != 0) {
        verbs_endpoint_fail(endpoint, "it brings no queue pair for datagrams up any more");
        return;
    }
    packets->failed = false;
    idle_all(packets);
}

/* --- out --- */

bool verbs_packet_fits(const struct verbs_endpoint *endpoint)
{
    const struct verbs_packets *packets = endpoint->packets;

    return !packets->failed && packets->posted - packets->completed < packets->sends;
}

static void post_chain(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;
    const uint32_t count = packets->chained;
    struct ibv_send_wr *bad = NULL;
    int error;

    if (count == 0)
        return;
    packets->chained = 0;
    packets->chain[count - 1].next = NULL;
    packets->chain[count - 1].send_flags |= IBV_SEND_SIGNALED; /* 2 */
    error = ibv_post_send(packets->qp, packets->chain, &bad);
    if (error)
        verbs_packets_fail(endpoint, strerror(error));
}

void verbs_packet_add(struct verbs_conn *conn, const struct packet_head *head, const uint8_t *data,
                      uint32_t bytes, uint32_t key)
{
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct verbs_packets *packets = endpoint->packets;
    const uint32_t place = (uint32_t)(packets->posted % packets->sends);
    struct packet_head *ours =
        (struct packet_head *)(void *)packets->heads.data + place; /* 64-aligned memory */
    struct ibv_send_wr *wr = &packets->chain[packets->chained];
    struct ibv_sge *pieces = packets->pieces[packets->chained];

    ASSERT(verbs_packet_fits(endpoint));
    *ours = *head;
    pieces[0] = (struct ibv_sge){
        .addr = (uintptr_t)ours, .length = sizeof *ours, .lkey = packets->heads.mr->lkey};
    pieces[1] = (struct ibv_sge){.addr = (uintptr_t)data, .length = bytes, .lkey = key};
    packets->posted++;
    *wr = (struct ibv_send_wr){
        .wr_id = verbs_work(VERBS_WORK_UD_SEND, 0, (uint32_t)packets->posted),
        .next = wr + 1,
        .sg_list = pieces,
        .num_sge = bytes > 0 ? 2 : 1,
        .opcode = IBV_WR_SEND,
        .send_flags =
            sizeof *head + bytes <= endpoint->device->max_inline_bytes ? IBV_SEND_INLINE : 0,
        .wr.ud = {.ah = conn->stream->ah,
                  .remote_qpn = conn->theirs.ud_number,
                  .remote_qkey = conn->theirs.ud_key}};
    conn->stream->last_post = packets->posted;
    if (++packets->chained == PACKET_CHAIN)
        post_chain(endpoint);
}

/* --- in --- */

static void post_idle(struct verbs_endpoint *endpoint)
{
    struct verbs_packets *packets = endpoint->packets;

    while (packets->idle_count > 0 && !packets->failed) {
        struct ibv_recv_wr chain[IDLE_POSTED], *bad;
        struct ibv_sge pieces[IDLE_POSTED];
        uint32_t count = 0;
        int error;

        for (; count < IDLE_POSTED && packets->idle_count > 0; count++) {
            const uint32_t buffer = packets->idle[--packets->idle_count];

            pieces[count] = (struct ibv_sge){.addr = (uintptr_t)packets->ring.data +
                                                     (uintptr_t)buffer * packets->stride,
                                             .length = packets->stride,
                                             .lkey = packets->ring.mr->lkey};
            chain[count] =
                (struct ibv_recv_wr){.wr_id = verbs_work(VERBS_WORK_UD_RECEIVE, 0, buffer),
                                     .next = &chain[count + 1],
                                     .sg_list = &pieces[count],
                                     .num_sge = 1};
        }
        chain[count - 1].next = NULL;
        error = ibv_post_recv(packets->qp, chain, &bad);
        if (error)
            verbs_packets_fail(endpoint, strerror(error));
    }
}

void verbs_packets_push(struct verbs_endpoint *endpoint)
{
    post_chain(endpoint);
    post_idle(endpoint);
}

void verbs_packet_give(struct verbs_endpoint *endpoint, struct verbs_held *held)
{
    struct verbs_packets *packets = endpoint->packets;
    const uint32_t buffer = (uint32_t)(held - packets->held);

    ASSERT(buffer < packets->receives && held->data && packets->in_place > 0);
    held->data = NULL;
    packets->in_place--;
    if (!packets->failed) /* else idle_all will find it */
        packets->idle[packets->idle_count++] = buffer;
}

/* 3: whose datagram it is. */
static struct verbs_conn *find_conn(struct verbs_endpoint *endpoint, const struct packet_head *head,
                                    const struct ibv_wc *wc)
{
    struct verbs_conn *conn = verbs_conn_of(endpoint, head->connection);

    if (!conn || !conn->stream || conn->token != head->token ||
        conn->theirs.ud_number != wc->src_qp)
        return NULL;
    if (conn->base.state == CONN_JOINING)
        verbs_connect_opened(conn);
    return conn->base.state == CONN_OPEN ? conn : NULL;
}

/* True: the buffer is kept. */
static bool receive(struct verbs_endpoint *endpoint, const struct ibv_wc *wc, uint32_t buffer)
{
    struct verbs_packets *packets = endpoint->packets;
    const uint8_t *data = packets->ring.data + (size_t)buffer * packets->stride + PACKET_GRH_BYTES;
    struct verbs_held *place = packets->in_place < PACKET_IN_PLACE ? &packets->held[buffer] : NULL;
    struct packet_head head;
    struct verbs_conn *conn;

    if (wc->byte_len < PACKET_GRH_BYTES + sizeof head || wc->byte_len > packets->stride)
        return false;
    memcpy(&head, data, sizeof head);
    if (head.bytes != wc->byte_len - PACKET_GRH_BYTES - sizeof head)
        return false;
    conn = find_conn(endpoint, &head, wc);
    return conn && verbs_stream_input(conn, &head, data + sizeof head, place);
}

void verbs_packet_completion(struct verbs_endpoint *endpoint, const struct ibv_wc *wc)
{
    struct verbs_packets *packets = endpoint->packets;
    const uint32_t number = verbs_work_number(wc->wr_id);

    if (packets->failed || wc->qp_num != packets->qp->qp_num) /* 4 */
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        verbs_packets_fail(endpoint, ibv_wc_status_str(wc->status));
        return;
    }
    if (verbs_work_kind(wc->wr_id) == VERBS_WORK_UD_SEND) {
        packets->completed += number - (uint32_t)packets->completed;
        return;
    }
    ASSERT(number < packets->receives);
    if (receive(endpoint, wc, number))
        packets->in_place++;
    else if (!packets->failed)
        packets->idle[packets->idle_count++] = number;
}
