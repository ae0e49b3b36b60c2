/* mlx5_layout.h - where each field lies in the commands and contexts that an mlx5 device takes, in one
 * table, and the numbers they hold. From NVIDIA's "Mellanox Adapters Programmer's Reference Manual" as the
 * Linux kernel's mlx5_ifc.h gives it. test/unit/fabric/mlx5_layout_test.py compares every line with that
 * header, of the distribution's kernel.
 *
 * The manual counts bits from the most significant bit of the first big-endian double word, as here.
 */
#ifndef FABRIC_MLX5_LAYOUT_H
#define FABRIC_MLX5_LAYOUT_H

/* X(structure, field, first bit, bits). A field that is itself a structure is there for its place.
 *
 * Fields that older kernels' headers leave reserved, though the device has them (a kernel has no use for
 * memory that user space registered): wq.dbr_umem_id, wq.wq_umem_id, qpc.dbr_umem_id,
 * create_qp_in.wq_umem_offset and .wq_umem_id, cmd_hca_cap.ib_striding_wq. */
#define MLX5_LAYOUT(X)                                                                             \
    X(query_hca_cap_in, opcode, 0x0, 16)                                                           \
    X(query_hca_cap_in, op_mod, 0x30, 16)                                                          \
    X(query_hca_cap_out, capability, 0x80, 0x8000)                                                 \
    X(cmd_hca_cap, ib_striding_wq, 0x205, 1)                                                       \
    X(cmd_hca_cap, log_max_rmp, 0x383, 5)                                                          \
    X(cmd_hca_cap, ext_stride_num_range, 0x3a0, 1)                                                 \
    X(cmd_hca_cap, tag_matching, 0x5f0, 1)                                                         \
    X(cmd_hca_cap, log_tag_matching_list_sz, 0x5f3, 5)                                             \
    X(cmd_hca_cap, log_max_xrq, 0x5fb, 5)                                                          \
                                                                                                   \
    X(create_xrq_in, opcode, 0x0, 16)                                                              \
    X(create_xrq_in, xrq_context, 0x80, 0xa00)                                                     \
    X(create_xrq_out, xrqn, 0x48, 24)                                                              \
    X(xrqc, topology, 0x14, 4)                                                                     \
    X(xrqc, offload, 0x1c, 4)                                                                      \
    X(xrqc, user_index, 0x28, 24)                                                                  \
    X(xrqc, cqn, 0x48, 24)                                                                         \
    X(xrqc, tag_matching_topology_context, 0x100, 0x80)                                            \
    X(xrqc, wq, 0x400, 0x600)                                                                      \
    X(tag_matching_topology_context, log_matching_list_sz, 0x0, 4)                                 \
                                                                                                   \
    X(create_rmp_in, opcode, 0x0, 16)                                                              \
    X(create_rmp_in, ctx, 0x100, 0x780)                                                            \
    X(create_rmp_out, rmpn, 0x48, 24)                                                              \
    X(rmpc, state, 0x8, 4)                                                                         \
    X(rmpc, wq, 0x180, 0x600)                                                                      \
                                                                                                   \
    X(wq, wq_type, 0x0, 4)                                                                         \
    X(wq, pd, 0x48, 24)                                                                            \
    X(wq, dbr_addr, 0x80, 64)                                                                      \
    X(wq, log_wq_stride, 0x10c, 4)                                                                 \
    X(wq, log_wq_sz, 0x11b, 5)                                                                     \
    X(wq, dbr_umem_valid, 0x120, 1)                                                                \
    X(wq, wq_umem_valid, 0x121, 1)                                                                 \
    X(wq, log_wqe_num_of_strides, 0x134, 4)                                                        \
    X(wq, log_wqe_stride_size, 0x13d, 3)                                                           \
    X(wq, dbr_umem_id, 0x140, 32)                                                                  \
    X(wq, wq_umem_id, 0x160, 32)                                                                   \
                                                                                                   \
    X(create_qp_in, opcode, 0x0, 16)                                                               \
    X(create_qp_in, qpc, 0xc0, 0x740)                                                              \
    X(create_qp_in, wq_umem_offset, 0x800, 64)                                                     \
    X(create_qp_in, wq_umem_id, 0x840, 32)                                                         \
    X(create_qp_in, wq_umem_valid, 0x860, 1)                                                       \
    X(create_qp_out, status, 0x0, 8)                                                               \
    X(create_qp_out, syndrome, 0x20, 32)                                                           \
    X(create_qp_out, qpn, 0x48, 24)                                                                \
    X(rst2init_qp_in, qpn, 0x48, 24)                                                               \
    X(rst2init_qp_in, qpc, 0xc0, 0x740)                                                            \
    X(init2rtr_qp_in, opcode, 0x0, 16)                                                             \
    X(init2rtr_qp_in, qpn, 0x48, 24)                                                               \
    X(init2rtr_qp_in, opt_param_mask, 0x80, 32)                                                    \
    X(init2rtr_qp_in, qpc, 0xc0, 0x740)                                                            \
    X(rtr2rts_qp_in, qpn, 0x48, 24)                                                                \
    X(rtr2rts_qp_in, qpc, 0xc0, 0x740)                                                             \
    X(qp_2err_in, opcode, 0x0, 16)                                                                 \
    X(qp_2err_in, qpn, 0x48, 24)                                                                   \
                                                                                                   \
    X(qpc, st, 0x8, 8)                                                                             \
    X(qpc, pm_state, 0x13, 2)                                                                      \
    X(qpc, pd, 0x28, 24)                                                                           \
    X(qpc, mtu, 0x40, 3)                                                                           \
    X(qpc, log_msg_max, 0x43, 5)                                                                   \
    X(qpc, log_sq_size, 0x51, 4)                                                                   \
    X(qpc, ts_format, 0x58, 2)                                                                     \
    X(qpc, uar_page, 0x68, 24)                                                                     \
    X(qpc, user_index, 0x88, 24)                                                                   \
    X(qpc, remote_qpn, 0xa8, 24)                                                                   \
    X(qpc, primary_address_path, 0xc0, 0x160)                                                      \
    X(qpc, retry_count, 0x38d, 3)                                                                  \
    X(qpc, rnr_retry, 0x390, 3)                                                                    \
    X(qpc, next_send_psn, 0x3c8, 24)                                                               \
    X(qpc, cqn_snd, 0x3e8, 24)                                                                     \
    X(qpc, log_rra_max, 0x488, 3)                                                                  \
    X(qpc, rre, 0x490, 1)                                                                          \
    X(qpc, rwe, 0x491, 1)                                                                          \
    X(qpc, min_rnr_nak, 0x4a3, 5)                                                                  \
    X(qpc, next_rcv_psn, 0x4a8, 24)                                                                \
    X(qpc, cqn_rcv, 0x4e8, 24)                                                                     \
    X(qpc, dbr_addr, 0x500, 64)                                                                    \
    X(qpc, rq_type, 0x565, 3)                                                                      \
    X(qpc, srqn_rmpn_xrqn, 0x568, 24)                                                              \
    X(qpc, dbr_umem_valid, 0x683, 1)                                                               \
    X(qpc, dbr_umem_id, 0x720, 32)                                                                 \
    X(ads, rlid, 0x30, 16)                                                                         \
    X(ads, ack_timeout, 0x40, 5)                                                                   \
    X(ads, src_addr_index, 0x48, 8)                                                                \
    X(ads, hop_limit, 0x58, 8)                                                                     \
    X(ads, rgid_rip, 0x80, 128)                                                                    \
    X(ads, udp_sport, 0x110, 16)                                                                   \
    X(ads, vhca_port_num, 0x128, 8)                                                                \
    X(ads, rmac_47_32, 0x130, 16)                                                                  \
    X(ads, rmac_31_0, 0x140, 32)

enum mlx5_layout {
#define MLX5_FIELD(structure, field, first, bits)                                                  \
    MLX5_AT_##structure##_##field = (first), MLX5_BITS_##structure##_##field = (bits),
    MLX5_LAYOUT(MLX5_FIELD)
#undef MLX5_FIELD
};

/* Bytes of a whole command or answer. */
enum mlx5_bytes {
    MLX5_QUERY_HCA_CAP_IN_BYTES = 16,
    MLX5_QUERY_HCA_CAP_OUT_BYTES = 16 + 4096,
    MLX5_CREATE_XRQ_IN_BYTES = 336,
    MLX5_CREATE_RMP_IN_BYTES = 272,
    MLX5_CREATE_QP_IN_BYTES = 272,
    MLX5_MODIFY_QP_IN_BYTES = 272, /* RST2INIT, INIT2RTR, RTR2RTS */
    MLX5_QP_2ERR_IN_BYTES = 16,
    MLX5_OUT_BYTES = 16, /* every answer but that of QUERY_HCA_CAP */
};

/* X(name in the kernel's headers without MLX5_, number): mlx5_ifc.h, device.h and qp.h of linux/mlx5. There
 * is no DESTROY: the kernel keeps the command that destroys a DevX object and runs it itself, when asked and
 * when the process dies. */
#define MLX5_NUMBERS(X)                                                                            \
    X(CMD_OP_QUERY_HCA_CAP, 0x100)                                                                 \
    X(CMD_OP_CREATE_QP, 0x500)                                                                     \
    X(CMD_OP_RST2INIT_QP, 0x502)                                                                   \
    X(CMD_OP_INIT2RTR_QP, 0x503)                                                                   \
    X(CMD_OP_RTR2RTS_QP, 0x504)                                                                    \
    X(CMD_OP_2ERR_QP, 0x507)                                                                       \
    X(CMD_OP_CREATE_XRQ, 0x717)                                                                    \
    X(CMD_OP_CREATE_RMP, 0x90c)                                                                    \
    X(CAP_GENERAL, 0)                                                                              \
    X(WQ_TYPE_LINKED_LIST_STRIDING_RQ, 2)                                                          \
    X(XRQC_TOPOLOGY_TAG_MATCHING, 1)                                                               \
    X(RMPC_STATE_RDY, 1)                                                                           \
    X(QPC_ST_RC, 0)                                                                                \
    X(QPC_PM_STATE_MIGRATED, 3)                                                                    \
    X(TIMESTAMP_FORMAT_DEFAULT, 1)                                                                 \
    X(QPC_MTU_256_BYTES, 1)                                                                        \
    X(QPC_MTU_4K_BYTES, 5)                                                                         \
    X(SRQ_RQ, 1)                                                                                   \
    X(QP_OPTPAR_RRE, 1 << 1)                                                                       \
    X(QP_OPTPAR_RWE, 1 << 3)                                                                       \
    X(EVENT_TYPE_WQ_CATAS_ERROR, 0x05)                                                             \
    X(EVENT_TYPE_WQ_INVAL_REQ_ERROR, 0x10)                                                         \
    X(EVENT_TYPE_WQ_ACCESS_ERROR, 0x11)                                                            \
    X(EVENT_TYPE_SRQ_CATAS_ERROR, 0x12)                                                            \
    X(EVENT_TYPE_XRQ_ERROR, 0x18)

enum mlx5_number {
#define MLX5_NUMBER(name, number) MLX5_##name = (number),
    MLX5_NUMBERS(MLX5_NUMBER)
#undef MLX5_NUMBER
};

/* Numbers from elsewhere. */
enum {
    MLX5_CAP_NOW = 1,              /* low bit of op_mod: HCA_CAP_OPMOD_GET_CUR, device.h */
    MLX5_NO_USER_INDEX = 0xffffff, /* MLX5_IB_DEFAULT_UIDX of the kernel's mlx5_ib.h */
    MLX5_LOG_MESSAGE_MAX = 30,     /* qpc.log_msg_max: 1 GiB, as the kernel and UCX set it */
    MLX5_ROCE_PORT = 0xc000,       /* lowest UDP source port of RoCEv2 */
};

/* An element of a shared receive queue: a "next" segment and one data segment, 16 bytes each
 * (struct mlx5_wqe_srq_next_seg and mlx5_wqe_data_seg of mlx5dv.h). Bytes, big-endian. */
enum {
    MLX5_ELEMENT_BYTES = 32,
    MLX5_ELEMENT_LOG_BYTES = 5,
    MLX5_ELEMENT_NEXT_AT = 2,     /* 16 bits: index of the next element */
    MLX5_ELEMENT_LENGTH_AT = 16,  /* 32 bits */
    MLX5_ELEMENT_KEY_AT = 20,     /* 32 bits */
    MLX5_ELEMENT_ADDRESS_AT = 24, /* 64 bits */
};

#endif
