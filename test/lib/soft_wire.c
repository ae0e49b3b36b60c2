/* soft_wire.c - the order in which packets move; datagrams.
 *
 * Each move takes queue pairs in turn, from a random one on, and lets each do one step; a datagram goes over
 * the network, where faults meet it, before it is delivered.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/lib/soft_verbs_impl.h"

enum { REORDER_WINDOW = 16 };

uint64_t soft_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void soft_activate(struct soft_qp *qp)
{
    if (qp->active_plus_1)
        return;
    soft.active[soft.active_count++] = qp;
    qp->active_plus_1 = soft.active_count;
}

void soft_deactivate(struct soft_qp *qp)
{
    struct soft_qp *last;

    if (!qp->active_plus_1)
        return;
    last = soft.active[--soft.active_count];
    soft.active[qp->active_plus_1 - 1] = last;
    last->active_plus_1 = qp->active_plus_1;
    qp->active_plus_1 = 0;
}

/* --- datagrams --- */

static struct soft_packet *packet_take(void)
{
    if (soft.spare_count > 0)
        return soft.spare[--soft.spare_count];
    if (soft.packet_count == SOFT_MAX_PACKETS)
        return NULL;
    return malloc(sizeof(struct soft_packet));
}

static void packet_free(struct soft_packet *packet)
{
    soft.spare[soft.spare_count++] = packet;
}

void soft_packets_clear(void)
{
    while (soft.packet_count > 0)
        free(soft.packets[--soft.packet_count]);
    while (soft.spare_count > 0)
        free(soft.spare[--soft.spare_count]);
}

static void network_add(struct soft_packet *packet)
{
    packet->due = soft.polls;
    if (soft.faults.delay_polls > 0)
        packet->due += random_below(&soft.random, soft.faults.delay_polls);
    soft.packets[soft.packet_count++] = packet;
}

/* Sends the oldest datagram of a queue pair; false: the network is full. */
static bool ud_step(struct soft_qp *qp)
{
    const struct soft_send *send = &qp->sends[qp->next % qp->cap.max_send_wr];
    struct soft_packet *packet;

    if (qp->state != IBV_QPS_RTS) {
        soft_deactivate(qp);
        return false;
    }
    if (soft.packet_count + 2 > SOFT_MAX_PACKETS)
        return false;
    packet = packet_take();
    if (!packet)
        return false;
    packet->from = qp->base.qp_num;
    packet->to = send->remote_qp;
    packet->key = send->remote_key >> 31 ? qp->attr.qkey : send->remote_key;
    packet->source = soft_qp_device(qp);
    packet->ah = send->ah;
    packet->bytes = send->bytes;
    soft_send_bytes(qp, qp->next, 0, packet->data, send->bytes);
    qp->next++;
    soft_send_done(qp, IBV_WC_SUCCESS);
    if (qp->next == qp->head)
        soft_deactivate(qp);
    if (soft_chance(soft.faults.drop)) {
        soft.stats.ud_lost++;
        packet_free(packet);
        return true;
    }
    network_add(packet);
    if (soft_chance(soft.faults.duplicate)) {
        struct soft_packet *twin = packet_take();

        if (twin) {
            *twin = *packet;
            network_add(twin);
        }
    }
    return true;
}

/* The 40 bytes in front of a datagram. Over IPv4 the header is in the last 20, the others are undefined. */
static void header_make(const struct soft_packet *packet, uint8_t header[SOFT_GRH_BYTES])
{
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
    const union ibv_gid *source = &packet->source->gids[packet->ah.grh.sgid_index];
    const union ibv_gid *target = &packet->ah.grh.dgid;
    struct ibv_grh grh = {.version_tclass_flow = htobe32(UINT32_C(6) << 28),
                          .paylen = htobe16((uint16_t)packet->bytes),
                          .next_hdr = 0x1b,
                          .hop_limit = packet->ah.grh.hop_limit,
                          .sgid = *source,
                          .dgid = *target};

    memset(header, 0xa5, SOFT_GRH_BYTES);
    if (!packet->ah.is_global)
        return;
    if (memcmp(target->raw, mapped, sizeof mapped) != 0 ||
        packet->source->config.gids[packet->ah.grh.sgid_index].type != IBV_GID_TYPE_ROCE_V2) {
        memcpy(header, &grh, SOFT_GRH_BYTES);
        return;
    }
    memset(header + 20, 0, 20);
    header[20] = 0x45;
    header[28] = packet->ah.grh.hop_limit;
    header[29] = 17; /* UDP */
    memcpy(header + 32, source->raw + 12, 4);
    memcpy(header + 36, target->raw + 12, 4);
}

static void deliver(const struct soft_packet *packet)
{
    struct soft_qp *qp = soft_qp_find(packet->to);
    uint8_t header[SOFT_GRH_BYTES];
    struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = SOFT_GRH_BYTES + packet->bytes};

    if (!qp || qp->base.qp_type != IBV_QPT_UD ||
        (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS) || qp->attr.qkey != packet->key ||
        !soft_reaches(packet->source, &packet->ah, soft_qp_device(qp)) ||
        packet->bytes > soft_qp_device(qp)->config.mtu_bytes)
        return;
    if (!soft_take_receive(qp)) {
        soft.stats.ud_unreceived++;
        return;
    }
    if (qp->rx_room < wc.byte_len) {
        wc.status = IBV_WC_LOC_LEN_ERR;
        soft_receive_done(qp, &wc);
        soft_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
        return;
    }
    header_make(packet, header);
    soft_scatter(qp->base.pd, qp->rx_sges, qp->rx.sge_count, 0, header, SOFT_GRH_BYTES);
    soft_scatter(qp->base.pd, qp->rx_sges, qp->rx.sge_count, SOFT_GRH_BYTES, packet->data,
                 packet->bytes);
    wc.src_qp = packet->from;
    wc.wc_flags = packet->ah.is_global ? IBV_WC_GRH : 0;
    wc.slid = packet->source->config.is_infiniband ? (uint16_t)(packet->source->index + 1) : 0;
    soft.stats.ud_packets++;
    soft_receive_done(qp, &wc);
}

/* Delivers one datagram that is due; false: there is none. */
static bool network_step(bool all)
{
    uint32_t at = 0;
    struct soft_packet *packet;

    if (soft.packet_count > 1 && soft_chance(soft.faults.reorder))
        at = (uint32_t)random_below(
            &soft.random, soft.packet_count < REORDER_WINDOW ? soft.packet_count : REORDER_WINDOW);
    while (at < soft.packet_count && !all && soft.packets[at]->due > soft.polls)
        at++;
    if (at >= soft.packet_count)
        return false;
    packet = soft.packets[at];
    soft.packet_count--;
    memmove(&soft.packets[at], &soft.packets[at + 1],
            (soft.packet_count - at) * sizeof(struct soft_packet *));
    deliver(packet);
    packet_free(packet);
    return true;
}

/* --- everything --- */

static bool step(struct soft_qp *qp, bool all)
{
    if (soft_chance(soft.faults.receive_pause))
        qp->pause_until = soft.polls + 1 + random_below(&soft.random, 50);
    if (!all && soft.polls < qp->pause_until)
        return false;
    return qp->base.qp_type == IBV_QPT_UD ? ud_step(qp) : soft_rc_step(qp, all);
}

/* Up to `budget` steps; how many were made. */
static uint32_t steps(uint32_t budget, bool all)
{
    uint32_t made = 0, idle = 0;
    uint32_t cursor =
        soft.active_count > 0 ? (uint32_t)random_below(&soft.random, soft.active_count) : 0;

    while (made < budget && soft.active_count > 0 && idle <= soft.active_count) {
        if (step(soft.active[cursor++ % soft.active_count], all)) {
            made++;
            idle = 0;
        } else {
            idle++;
        }
    }
    for (uint32_t i = 0; i < budget && network_step(all); i++)
        made++;
    return made;
}

void soft_move(bool all)
{
    soft.polls++;
    if (!all) {
        steps(soft.config.packets_per_poll, false);
        return;
    }
    while (steps(soft.config.packets_per_poll, true) > 0)
        ;
}
