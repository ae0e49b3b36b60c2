/* soft_device.c - devices, contexts, ports, GIDs, protection domains, address handles. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "test/lib/soft_verbs_impl.h"

#undef ibv_get_device_list
#undef ibv_query_port

static struct soft_device *device_of(struct ibv_device *device)
{
    return SOFT_CONTAINER(device, struct soft_device, base);
}

struct soft_context *soft_context_of(struct ibv_context *context)
{
    return SOFT_CONTAINER(context, struct soft_context, verbs.context);
}

static void gid_parse(const char *text, union ibv_gid *out)
{
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff};

    memcpy(out->raw, mapped, sizeof mapped);
    if (inet_pton(AF_INET, text, out->raw + sizeof mapped) != 1 &&
        inet_pton(AF_INET6, text, out->raw) != 1)
        soft_mistake("\"%s\" is no address", text);
}

void soft_devices_init(void)
{
    soft.device_count = 0;
    for (unsigned i = 0; i < SOFT_MAX_DEVICES && soft.config.devices[i].name; i++) {
        struct soft_device *device = &soft.devices[i];

        *device = (struct soft_device){.config = soft.config.devices[i], .index = i};
        device->base.node_type = IBV_NODE_CA;
        device->base.transport_type = IBV_TRANSPORT_IB;
        snprintf(device->base.name, sizeof device->base.name, "%s", device->config.name);
        snprintf(device->base.dev_name, sizeof device->base.dev_name, "uverbs%u", i);
        if (device->config.mtu_bytes == 0)
            device->config.mtu_bytes = 1024;
        if (device->config.max_sge == 0)
            device->config.max_sge = 16;
        if (device->config.max_inline == 0)
            device->config.max_inline = 220;
        for (unsigned g = 0; g < SOFT_MAX_GIDS; g++)
            if (device->config.gids[g].address)
                gid_parse(device->config.gids[g].address, &device->gids[g]);
        soft.device_count++;
    }
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = NULL;

    soft_lock();
    if (!soft_call_fails()) {
        list = calloc(soft.device_count + 1, sizeof(struct ibv_device *));
        for (unsigned i = 0; list && i < soft.device_count; i++)
            list[i] = &soft.devices[i].base;
        if (count)
            *count = (int)soft.device_count;
    }
    soft_unlock();
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

int ibv_fork_init(void)
{
    return 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;

    while (soft_mtu_bytes(mtu) < bytes)
        mtu++;
    return mtu;
}

uint32_t soft_mtu_bytes(enum ibv_mtu mtu)
{
    return UINT32_C(128) << mtu;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t bytes)
{
    const struct soft_device *device = soft_context_of(context)->device;
    const bool is_ib = device->config.is_infiniband;
    struct ibv_port_attr is = {.max_mtu = IBV_MTU_4096,
                               .active_mtu = mtu_code(device->config.mtu_bytes),
                               .gid_tbl_len = SOFT_MAX_GIDS,
                               .port_cap_flags = is_ib ? 0 : IBV_PORT_IP_BASED_GIDS,
                               .max_msg_sz = SOFT_MAX_MESSAGE,
                               .pkey_tbl_len = 1,
                               .active_width = 2,
                               .active_speed = 32,
                               .link_layer =
                                   is_ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET};
    bool fails;

    if (port != 1)
        return EINVAL;
    soft_lock();
    fails = soft_call_fails();
    is.state = device->config.is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    is.phys_state = device->config.is_down ? 3 : 5;
    is.lid = is_ib ? (uint16_t)(device->index + 1) : 0;
    is.sm_lid = is_ib ? 1 : 0;
    soft_unlock();
    if (fails)
        return errno;
    memset(attr, 0, bytes);
    memcpy(attr, &is, bytes < sizeof is ? bytes : sizeof is);
    return 0;
}

static void device_attr(const struct soft_device *device, struct ibv_device_attr *out)
{
    *out = (struct ibv_device_attr){
        .fw_ver = "1.0.0",
        .node_guid = htobe64(UINT64_C(0x020000fffe000000) + device->index),
        .max_mr_size = UINT64_C(1) << 40,
        .page_size_cap = 4096,
        .max_qp = SOFT_MAX_QPS,
        .max_qp_wr = SOFT_MAX_QP_WR,
        .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
        .max_sge = (int)device->config.max_sge,
        .max_sge_rd = (int)device->config.max_sge,
        .max_cq = 1 << 16,
        .max_cqe = SOFT_MAX_CQE,
        .max_mr = SOFT_MAX_MRS,
        .max_pd = 1 << 16,
        .max_qp_rd_atom = SOFT_MAX_READS,
        .max_res_rd_atom = SOFT_MAX_READS * SOFT_MAX_QPS,
        .max_qp_init_rd_atom = SOFT_MAX_READS,
        .atomic_cap = IBV_ATOMIC_NONE,
        .max_ah = 1 << 20,
        .max_srq = device->config.lacks_srq ? 0 : 1 << 16,
        .max_srq_wr = device->config.lacks_srq ? 0 : SOFT_MAX_QP_WR,
        .max_srq_sge = device->config.lacks_srq ? 0 : (int)device->config.max_sge,
        .max_pkeys = 1,
        .local_ca_ack_delay = 15,
        .phys_port_cnt = 1};
}

/* A call that only looks, and touches nothing that is locked, is made to fail. */
static bool query_fails(void)
{
    bool fails;

    soft_lock();
    fails = soft_call_fails();
    soft_unlock();
    return fails;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    if (query_fails())
        return errno;
    device_attr(soft_context_of(context)->device, attr);
    return 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t bytes)
{
    const struct soft_device *device = soft_context_of(context)->device;
    struct ibv_device_attr_ex is = {.max_dm_size = device->config.dm_bytes, .phys_port_cnt_ex = 1};
    const int error = ibv_query_device(context, &is.orig_attr);

    (void)input;
    if (error)
        return error;
    if (device->config.has_odp) {
        is.odp_caps.general_caps = IBV_ODP_SUPPORT;
        is.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                                     IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                                     IBV_ODP_SUPPORT_SRQ_RECV;
        is.odp_caps.per_transport_caps.rc_odp_caps &= ~device->config.lacks_rc_odp;
        is.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
    }
    memset(attr, 0, bytes);
    memcpy(attr, &is, bytes < sizeof is ? bytes : sizeof is);
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    if (query_fails())
        return -1;
    if (port != 1 || index < 0 || index >= SOFT_MAX_GIDS) {
        errno = EINVAL;
        return -1;
    }
    *gid = soft_context_of(context)->device->gids[index];
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t bytes)
{
    const struct soft_device *device = soft_context_of(context)->device;
    ssize_t count = 0;
    if (query_fails())
        return -errno;
    if (flags != 0 || bytes != sizeof *entries)
        return -EINVAL;
    for (uint32_t i = 0; i < SOFT_MAX_GIDS; i++) {
        if (!device->config.gids[i].address)
            continue;
        if ((size_t)count == max)
            return -EINVAL;
        entries[count++] = (struct ibv_gid_entry){.gid = device->gids[i],
                                                  .gid_index = i,
                                                  .port_num = 1,
                                                  .gid_type = device->config.gids[i].type,
                                                  .ndev_ifindex = device->index + 1};
    }
    return count;
}

static struct soft_context *context_make(struct soft_device *device)
{
    struct soft_context *context = calloc(1, sizeof *context);

    if (!context)
        return NULL;
    context->device = device;
    context->verbs.sz = sizeof context->verbs;
    context->verbs.query_port = query_port;
    context->verbs.query_device_ex = query_device_ex;
    context->verbs.alloc_dm = soft_alloc_dm;
    context->verbs.free_dm = soft_free_dm;
    context->verbs.reg_dm_mr = soft_reg_dm_mr;
    context->verbs.context =
        (struct ibv_context){.device = &device->base,
                             .ops = {.poll_cq = soft_poll_cq,
                                     .req_notify_cq = soft_req_notify_cq,
                                     .post_send = soft_post_send,
                                     .post_recv = soft_post_recv,
                                     .post_srq_recv = soft_post_srq_recv},
                             .cmd_fd = -1,
                             .async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE),
                             .num_comp_vectors = 1,
                             .abi_compat = __VERBS_ABI_IS_EXTENDED};
    if (context->verbs.context.async_fd >= 0)
        return context;
    free(context);
    return NULL;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct soft_context *context = NULL;
    unsigned slot = 0;

    soft_lock();
    while (slot < SOFT_MAX_CONTEXTS && soft.contexts[slot])
        slot++;
    if (slot == SOFT_MAX_CONTEXTS)
        errno = EMFILE;
    else if (!soft_call_fails())
        context = context_make(device_of(device));
    if (context) {
        soft.contexts[slot] = context;
        soft.stats.contexts++;
    }
    soft_unlock();
    return context ? &context->verbs.context : NULL;
}

int ibv_close_device(struct ibv_context *context)
{
    struct soft_context *it = soft_context_of(context);

    soft_lock();
    if (it->children > 0)
        soft_mistake("a context is closed that still has %u children", it->children);
    for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++)
        if (soft.contexts[i] == it)
            soft.contexts[i] = NULL;
    soft.stats.contexts--;
    soft_unlock();
    close(context->async_fd);
    free(it);
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct soft_pd *pd = NULL;

    soft_lock();
    if (!soft_call_fails())
        pd = calloc(1, sizeof *pd);
    if (pd) {
        pd->base.context = context;
        soft_context_of(context)->children++;
        soft.stats.pds++;
    }
    soft_unlock();
    return pd ? &pd->base : NULL;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct soft_pd *it = SOFT_CONTAINER(pd, struct soft_pd, base);

    soft_lock();
    if (it->children > 0)
        soft_mistake("a protection domain is freed that still has %u children", it->children);
    soft_context_of(pd->context)->children--;
    soft.stats.pds--;
    soft_unlock();
    free(it);
    return 0;
}

int soft_check_ah(const struct soft_device *device, const struct ibv_ah_attr *attr)
{
    static const union ibv_gid none;

    if (attr->port_num != 1)
        return EINVAL;
    if (!attr->is_global)
        return device->config.is_infiniband ? 0 : EINVAL;
    if (attr->grh.sgid_index >= SOFT_MAX_GIDS || !device->config.gids[attr->grh.sgid_index].address)
        return EINVAL;
    if (memcmp(&attr->grh.dgid, &none, sizeof none) == 0)
        return EINVAL;
    return 0;
}

bool soft_reaches(const struct soft_device *from, const struct ibv_ah_attr *ah,
                  const struct soft_device *to)
{
    if (from->config.is_down || to->config.is_down ||
        from->config.is_infiniband != to->config.is_infiniband)
        return false;
    if (!ah->is_global)
        return ah->dlid == to->index + 1;
    for (unsigned i = 0; i < SOFT_MAX_GIDS; i++)
        if (to->config.gids[i].address &&
            to->config.gids[i].type == from->config.gids[ah->grh.sgid_index].type &&
            memcmp(&to->gids[i], &ah->grh.dgid, sizeof to->gids[i]) == 0)
            return true;
    return false;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct soft_ah *ah = NULL;
    int error;

    soft_lock();
    soft.held_ahs++;
    while (soft.holds_ahs)
        pthread_cond_wait(&soft.released, &soft.lock);
    soft.held_ahs--;
    error = soft_check_ah(soft_context_of(pd->context)->device, attr);
    if (error)
        errno = error;
    else if (!soft_call_fails())
        ah = calloc(1, sizeof *ah);
    if (ah) {
        ah->base = (struct ibv_ah){.context = pd->context, .pd = pd};
        ah->attr = *attr;
        SOFT_CONTAINER(pd, struct soft_pd, base)->children++;
        soft.stats.ahs++;
    }
    soft_unlock();
    return ah ? &ah->base : NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    soft_lock();
    SOFT_CONTAINER(ah->pd, struct soft_pd, base)->children--;
    soft.stats.ahs--;
    soft_unlock();
    free(SOFT_CONTAINER(ah, struct soft_ah, base));
    return 0;
}
