/* mlx5_command.c - see mlx5_command.h. Every place comes from the table in mlx5_layout.h.
 *
 *  command-1 A command's bytes are all written: what no field names is 0, as the manual wants of reserved bits.
 *  command-2 A value that its field cannot hold is a mistake of the caller, never cut.
 */
#include "common/fabric/mlx5/mlx5_command.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "mlx5_counter_word swaps");
static_assert(MLX5_CREATE_XRQ_IN_BYTES * 8 ==
                  MLX5_AT_create_xrq_in_xrq_context + MLX5_BITS_create_xrq_in_xrq_context,
              "the context ends the command");
static_assert(MLX5_CREATE_RMP_IN_BYTES * 8 ==
                  MLX5_AT_create_rmp_in_ctx + MLX5_BITS_create_rmp_in_ctx,
              "the context ends the command");
static_assert(MLX5_BITS_create_xrq_in_xrq_context == MLX5_AT_xrqc_wq + MLX5_BITS_xrqc_wq,
              "the work queue ends the context");
static_assert(MLX5_BITS_create_rmp_in_ctx == MLX5_AT_rmpc_wq + MLX5_BITS_rmpc_wq,
              "the work queue ends the context");
static_assert(MLX5_AT_create_qp_in_qpc + MLX5_BITS_create_qp_in_qpc ==
                  MLX5_AT_create_qp_in_wq_umem_offset,
              "what follows the context");
static_assert(MLX5_AT_create_xrq_out_xrqn == MLX5_AT_create_qp_out_qpn &&
                  MLX5_AT_create_rmp_out_rmpn == MLX5_AT_create_qp_out_qpn,
              "one decoder for all numbers");
static_assert(MLX5_QUERY_HCA_CAP_OUT_BYTES * 8 ==
                  MLX5_AT_query_hca_cap_out_capability + MLX5_BITS_query_hca_cap_out_capability,
              "the capabilities end the answer");

/* Places of contexts inside of a command, in bits. */
enum {
    MODIFY_QPC = MLX5_AT_init2rtr_qp_in_qpc,
    MODIFY_PATH = MODIFY_QPC + MLX5_AT_qpc_primary_address_path,
};
static_assert(MLX5_AT_rst2init_qp_in_qpc == MLX5_AT_init2rtr_qp_in_qpc &&
                  MLX5_AT_rtr2rts_qp_in_qpc == MLX5_AT_init2rtr_qp_in_qpc &&
                  MLX5_AT_rst2init_qp_in_qpn == MLX5_AT_init2rtr_qp_in_qpn &&
                  MLX5_AT_rtr2rts_qp_in_qpn == MLX5_AT_init2rtr_qp_in_qpn,
              "the three moves are laid out alike");

/* Fields of up to 32 bits never cross a double word; the table's test holds them to it. */
static void put(uint8_t *bytes, uint32_t at, uint32_t bits, uint64_t value)
{
    if (bits == 64) {
        put(bytes, at, 32, value >> 32);
        put(bytes, at + 32, 32, value & UINT32_MAX);
        return;
    }
    ASSERT(bits >= 1 && bits <= 32 && at % 32 + bits <= 32);
    ASSERT(value >> bits == 0); /* command-2 */
    uint32_t word, shift = 32 - bits - at % 32;
    memcpy(&word, bytes + at / 32 * 4, sizeof word);
    uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1) << shift;
    word = htobe32((be32toh(word) & ~mask) | (uint32_t)value << shift);
    memcpy(bytes + at / 32 * 4, &word, sizeof word);
}

static uint32_t get(const uint8_t *bytes, uint32_t at, uint32_t bits)
{
    uint32_t word;
    memcpy(&word, bytes + at / 32 * 4, sizeof word);
    return be32toh(word) >> (32 - bits - at % 32) & (uint32_t)((UINT64_C(1) << bits) - 1);
}

/* Sets a field of a structure that begins at bit `base` of the command. */
#define PUT(bytes, base, structure, field, value)                                                  \
    put(bytes, (base) + MLX5_AT_##structure##_##field, MLX5_BITS_##structure##_##field, value)
#define GET(bytes, base, structure, field)                                                         \
    get(bytes, (base) + MLX5_AT_##structure##_##field, MLX5_BITS_##structure##_##field)

/* --- capabilities --- */

void mlx5_encode_query(uint8_t out[static MLX5_QUERY_HCA_CAP_IN_BYTES])
{
    memset(out, 0, MLX5_QUERY_HCA_CAP_IN_BYTES);
    PUT(out, 0, query_hca_cap_in, opcode, MLX5_CMD_OP_QUERY_HCA_CAP);
    PUT(out, 0, query_hca_cap_in, op_mod, (unsigned)MLX5_CAP_GENERAL << 1 | MLX5_CAP_NOW);
}

int mlx5_decode_query(const void *answer, size_t bytes, struct mlx5_capabilities *out)
{
    int error = mlx5_decode_status(answer, bytes, NULL);
    if (error)
        return error;
    if (bytes < MLX5_QUERY_HCA_CAP_OUT_BYTES)
        return ROWAN_EFORMAT;
    enum { CAP = MLX5_AT_query_hca_cap_out_capability };
    *out = (struct mlx5_capabilities){
        .has_striding = GET(answer, CAP, cmd_hca_cap, ib_striding_wq),
        .has_few_strides = GET(answer, CAP, cmd_hca_cap, ext_stride_num_range),
        .has_tag_matching = GET(answer, CAP, cmd_hca_cap, tag_matching),
        .log_list = (uint8_t)GET(answer, CAP, cmd_hca_cap, log_tag_matching_list_sz),
        .log_queues = (uint8_t)GET(answer, CAP, cmd_hca_cap, log_max_xrq),
        .log_plain_queues = (uint8_t)GET(answer, CAP, cmd_hca_cap, log_max_rmp),
    };
    return 0;
}

/* --- the queue --- */

static void put_work_queue(uint8_t *out, uint32_t base, const struct mlx5_queue_layout *queue)
{
    ASSERT(queue->log_elements >= 6 && queue->log_elements <= 15 && queue->log_strides >= 9 &&
           queue->log_stride_bytes >= 6 && queue->counter.at % 8 == 0);
    PUT(out, base, wq, wq_type, MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ);
    PUT(out, base, wq, pd, queue->pd);
    PUT(out, base, wq, dbr_addr, queue->counter.at);
    PUT(out, base, wq, log_wq_stride, MLX5_ELEMENT_LOG_BYTES);
    PUT(out, base, wq, log_wq_sz, queue->log_elements);
    PUT(out, base, wq, dbr_umem_valid, 1);
    PUT(out, base, wq, wq_umem_valid, 1);
    PUT(out, base, wq, log_wqe_num_of_strides, (unsigned)(queue->log_strides - 9));
    PUT(out, base, wq, log_wqe_stride_size, (unsigned)(queue->log_stride_bytes - 6));
    PUT(out, base, wq, dbr_umem_id, queue->counter.umem);
    PUT(out, base, wq, wq_umem_id, queue->umem);
}

void mlx5_encode_create_xrq(const struct mlx5_queue_layout *queue,
                            uint8_t out[static MLX5_CREATE_XRQ_IN_BYTES])
{
    enum { XRQC = MLX5_AT_create_xrq_in_xrq_context };
    memset(out, 0, MLX5_CREATE_XRQ_IN_BYTES);
    PUT(out, 0, create_xrq_in, opcode, MLX5_CMD_OP_CREATE_XRQ);
    PUT(out, XRQC, xrqc, topology, MLX5_XRQC_TOPOLOGY_TAG_MATCHING);
    PUT(out, XRQC, xrqc, offload, 0); /* no rendezvous: an entry's bytes must never start a read */
    PUT(out, XRQC, xrqc, user_index, MLX5_NO_USER_INDEX);
    PUT(out, XRQC, xrqc, cqn, queue->cq);
    /* A list for one tag, which nobody will put on it: the least that can be asked for. */
    PUT(out, XRQC + MLX5_AT_xrqc_tag_matching_topology_context, tag_matching_topology_context,
        log_matching_list_sz, 1);
    put_work_queue(out, XRQC + MLX5_AT_xrqc_wq, queue);
}

void mlx5_encode_create_rmp(const struct mlx5_queue_layout *queue,
                            uint8_t out[static MLX5_CREATE_RMP_IN_BYTES])
{
    enum { RMPC = MLX5_AT_create_rmp_in_ctx };
    memset(out, 0, MLX5_CREATE_RMP_IN_BYTES);
    PUT(out, 0, create_rmp_in, opcode, MLX5_CMD_OP_CREATE_RMP);
    PUT(out, RMPC, rmpc, state, MLX5_RMPC_STATE_RDY);
    put_work_queue(out, RMPC + MLX5_AT_rmpc_wq, queue);
}

/* --- queue pairs --- */

void mlx5_encode_create_qp(const struct mlx5_pair_layout *pair,
                           uint8_t out[static MLX5_CREATE_QP_IN_BYTES])
{
    enum { QPC = MLX5_AT_create_qp_in_qpc };
    memset(out, 0, MLX5_CREATE_QP_IN_BYTES);
    PUT(out, 0, create_qp_in, opcode, MLX5_CMD_OP_CREATE_QP);
    PUT(out, QPC, qpc, st, MLX5_QPC_ST_RC);
    PUT(out, QPC, qpc, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
    PUT(out, QPC, qpc, pd, pair->pd);
    PUT(out, QPC, qpc, log_sq_size, pair->log_sends);
    /* Not 0: that is a clock which some devices do not have. */
    PUT(out, QPC, qpc, ts_format, MLX5_TIMESTAMP_FORMAT_DEFAULT);
    PUT(out, QPC, qpc, uar_page, pair->uar);
    PUT(out, QPC, qpc, user_index, MLX5_NO_USER_INDEX);
    PUT(out, QPC, qpc, cqn_snd, pair->cq);
    PUT(out, QPC, qpc, cqn_rcv, pair->cq);
    PUT(out, QPC, qpc, dbr_addr, pair->counter.at);
    PUT(out, QPC, qpc, dbr_umem_valid, 1);
    PUT(out, QPC, qpc, dbr_umem_id, pair->counter.umem);
    PUT(out, QPC, qpc, rq_type, MLX5_SRQ_RQ);
    PUT(out, QPC, qpc, srqn_rmpn_xrqn, pair->queue);
    /* cs_res stays 0: payloads are never put into completions instead of the zone. */
    PUT(out, 0, create_qp_in, wq_umem_offset, pair->sends.at);
    PUT(out, 0, create_qp_in, wq_umem_id, pair->sends.umem);
    PUT(out, 0, create_qp_in, wq_umem_valid, 1);
}

/* What the moves of a queue pair have in common. */
static void put_move(uint8_t out[static MLX5_MODIFY_QP_IN_BYTES], uint32_t opcode, uint32_t qp)
{
    memset(out, 0, MLX5_MODIFY_QP_IN_BYTES);
    PUT(out, 0, init2rtr_qp_in, opcode, opcode);
    PUT(out, 0, init2rtr_qp_in, qpn, qp);
}

void mlx5_encode_init(uint32_t qp, uint8_t port, uint8_t out[static MLX5_MODIFY_QP_IN_BYTES])
{
    put_move(out, MLX5_CMD_OP_RST2INIT_QP, qp);
    PUT(out, MODIFY_QPC, qpc, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
    PUT(out, MODIFY_QPC, qpc, rre, 1);
    PUT(out, MODIFY_PATH, ads, vhca_port_num, port);
}

static void put_path(uint8_t *out, const struct ibv_ah_attr *to, const struct mlx5_hop *hop)
{
    const uint8_t *mac = hop->mac;
    PUT(out, MODIFY_PATH, ads, vhca_port_num, to->port_num);
    if (!to->is_global) {
        PUT(out, MODIFY_PATH, ads, rlid, to->dlid);
        return;
    }
    memcpy(out + (MODIFY_PATH + MLX5_AT_ads_rgid_rip) / 8, to->grh.dgid.raw, sizeof to->grh.dgid);
    PUT(out, MODIFY_PATH, ads, src_addr_index, to->grh.sgid_index);
    PUT(out, MODIFY_PATH, ads, hop_limit, hop->limit);
    PUT(out, MODIFY_PATH, ads, rmac_47_32, (uint32_t)mac[0] << 8 | mac[1]);
    PUT(out, MODIFY_PATH, ads, rmac_31_0,
        (uint32_t)mac[2] << 24 | (uint32_t)mac[3] << 16 | (uint32_t)mac[4] << 8 | mac[5]);
    PUT(out, MODIFY_PATH, ads, udp_sport, MLX5_ROCE_PORT);
}

/* The power of two, not above `count`, as its exponent. */
static uint32_t log2_below(uint32_t count)
{
    return 31 - (uint32_t)__builtin_clz(count | 1);
}

void mlx5_encode_rtr(uint32_t qp, const struct ibv_qp_attr *to, const struct mlx5_hop *hop,
                     uint8_t out[static MLX5_MODIFY_QP_IN_BYTES])
{
    const uint32_t mtu = to->path_mtu;
    ASSERT(mtu >= MLX5_QPC_MTU_256_BYTES && mtu <= MLX5_QPC_MTU_4K_BYTES);
    put_move(out, MLX5_CMD_OP_INIT2RTR_QP, qp);
    PUT(out, 0, init2rtr_qp_in, opt_param_mask, MLX5_QP_OPTPAR_RRE | MLX5_QP_OPTPAR_RWE);
    PUT(out, MODIFY_QPC, qpc, mtu, mtu);
    PUT(out, MODIFY_QPC, qpc, log_msg_max, MLX5_LOG_MESSAGE_MAX);
    PUT(out, MODIFY_QPC, qpc, remote_qpn, to->dest_qp_num);
    PUT(out, MODIFY_QPC, qpc, next_rcv_psn, to->rq_psn);
    PUT(out, MODIFY_QPC, qpc, log_rra_max, log2_below(to->max_dest_rd_atomic));
    PUT(out, MODIFY_QPC, qpc, min_rnr_nak, to->min_rnr_timer);
    /* The fence's READ, and no WRITE. */
    PUT(out, MODIFY_QPC, qpc, rre, 1);
    PUT(out, MODIFY_QPC, qpc, rwe, 0);
    put_path(out, &to->ah_attr, hop);
}

void mlx5_encode_rts(uint32_t qp, const struct ibv_qp_attr *to,
                     uint8_t out[static MLX5_MODIFY_QP_IN_BYTES])
{
    put_move(out, MLX5_CMD_OP_RTR2RTS_QP, qp);
    PUT(out, MODIFY_QPC, qpc, next_send_psn, to->sq_psn);
    PUT(out, MODIFY_QPC, qpc, retry_count, to->retry_cnt);
    PUT(out, MODIFY_QPC, qpc, rnr_retry, to->rnr_retry);
    PUT(out, MODIFY_PATH, ads, ack_timeout, to->timeout);
}

void mlx5_encode_error(uint32_t qp, uint8_t out[static MLX5_QP_2ERR_IN_BYTES])
{
    memset(out, 0, MLX5_QP_2ERR_IN_BYTES);
    PUT(out, 0, qp_2err_in, opcode, MLX5_CMD_OP_2ERR_QP);
    PUT(out, 0, qp_2err_in, qpn, qp);
}

/* --- answers --- */

int mlx5_decode_status(const void *answer, size_t bytes, uint32_t *syndrome)
{
    if (bytes < MLX5_OUT_BYTES)
        return ROWAN_EFORMAT;
    if (syndrome)
        *syndrome = GET(answer, 0, create_qp_out, syndrome);
    return GET(answer, 0, create_qp_out, status) ? ROWAN_EUNSUPPORTED : 0;
}

int mlx5_decode_number(const void *answer, size_t bytes, uint32_t *number, uint32_t *syndrome)
{
    int error = mlx5_decode_status(answer, bytes, syndrome);
    if (error)
        return error;
    *number = GET(answer, 0, create_qp_out, qpn);
    return 0;
}

/* --- elements --- */

void mlx5_element_link(uint8_t *element, uint32_t index, uint32_t count)
{
    ASSERT(index < count && count <= 1 << 15);
    memset(element, 0, MLX5_ELEMENT_BYTES);
    uint16_t next = htobe16((uint16_t)((index + 1) % count));
    memcpy(element + MLX5_ELEMENT_NEXT_AT, &next, sizeof next);
}

void mlx5_element_set(uint8_t *element, uint64_t address, uint32_t bytes, uint32_t key)
{
    uint32_t length = htobe32(bytes), be_key = htobe32(key);
    uint64_t be_address = htobe64(address);
    memcpy(element + MLX5_ELEMENT_LENGTH_AT, &length, sizeof length);
    memcpy(element + MLX5_ELEMENT_KEY_AT, &be_key, sizeof be_key);
    memcpy(element + MLX5_ELEMENT_ADDRESS_AT, &be_address, sizeof be_address);
}
