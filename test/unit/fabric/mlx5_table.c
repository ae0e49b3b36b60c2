/* mlx5_table.c - prints the table of common/fabric/mlx5/mlx5_layout.h for mlx5_layout_test.py. */
#include <stdio.h>

#include "common/fabric/mlx5/mlx5_layout.h"

int main(void)
{
#define FIELD(structure, field, first, bits)                                                       \
    printf("field %s %s %u %u\n", #structure, #field, (unsigned)(first), (unsigned)(bits));
    MLX5_LAYOUT(FIELD)
#define NUMBER(name, number) printf("number MLX5_%s %u\n", #name, (unsigned)(number));
    MLX5_NUMBERS(NUMBER)
#define BYTES(structure, bytes) printf("bytes %s %u\n", #structure, (unsigned)(bytes));
    BYTES(query_hca_cap_in, MLX5_QUERY_HCA_CAP_IN_BYTES)
    BYTES(query_hca_cap_out, MLX5_QUERY_HCA_CAP_OUT_BYTES)
    BYTES(create_xrq_in, MLX5_CREATE_XRQ_IN_BYTES)
    BYTES(create_xrq_out, MLX5_OUT_BYTES)
    BYTES(create_rmp_in, MLX5_CREATE_RMP_IN_BYTES)
    BYTES(create_rmp_out, MLX5_OUT_BYTES)
    BYTES(create_qp_in, MLX5_CREATE_QP_IN_BYTES)
    BYTES(create_qp_out, MLX5_OUT_BYTES)
    BYTES(rst2init_qp_in, MLX5_MODIFY_QP_IN_BYTES)
    BYTES(init2rtr_qp_in, MLX5_MODIFY_QP_IN_BYTES)
    BYTES(rtr2rts_qp_in, MLX5_MODIFY_QP_IN_BYTES)
    BYTES(qp_2err_in, MLX5_QP_2ERR_IN_BYTES)
    BYTES(qp_2err_out, MLX5_OUT_BYTES)
    return 0;
}
