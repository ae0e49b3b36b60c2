/* names_test.c - a resolver that takes its time. It is this program's own: what the C library's would be asked comes here. */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "common/fabric/fabric.h"
#include "common/reactor/names.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned asked;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    static struct sockaddr_in address;
    (void)service;
    (void)hints;
    asked++;
    pthread_mutex_lock(&gate); /* held: it takes as long */
    pthread_mutex_unlock(&gate);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7f000002);
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    **out = (struct addrinfo){.ai_addr = (struct sockaddr *)&address, .ai_addrlen = sizeof address};
    if (strcmp(host, "nobody.test") != 0)
        return 0;
    free(*out);
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found)
{
    free(found);
}

static char number[NAMES_NUMBER_BYTES];

TEST(a_number_is_its_own_and_asks_nobody)
{
    assert_int_equal(names_look("10.0.0.7", number), 0);
    assert_string_equal(number, "10.0.0.7");
    assert_int_equal(names_look("fe80::1", number), 0);
    assert_string_equal(number, "fe80::1");
    assert_int_equal(asked, 0);
}

TEST(who_looks_a_name_up_does_not_wait_for_the_resolver)
{
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 100; i++)
        assert_int_equal(names_look("slow.test", number), ROWAN_EAGAIN);
    assert_true(WAIT_FOR(asked == 1));
    pthread_mutex_unlock(&gate);
    assert_true(WAIT_FOR(names_look("slow.test", number) == 0));
    assert_string_equal(number, "127.0.0.2");
    assert_int_equal(asked, 1);
    assert_int_equal(names_look("slow.test", number), 0);
}

TEST(a_name_that_nobody_knows_is_said_to_be_that_and_asked_for_again)
{
    const unsigned before = asked;
    assert_int_equal(names_look("nobody.test", number), ROWAN_EAGAIN);
    names_wait();
    assert_int_equal(names_look("nobody.test", number), ROWAN_EUNREACHABLE);
    assert_int_equal(asked, before + 1);
    assert_true(WAIT_FOR((names_look("nobody.test", number), asked > before + 1)));
    assert_int_equal(names_look("slow.test", number), 0); /* and others go on */
}

TEST(a_fabric_s_address_may_be_a_name_which_its_start_waits_for)
{
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    assert_int_equal(fabric_open(NULL, "tcp:another.test:31999", &fabric), 0);
    assert_int_equal(fabric_endpoint_open(fabric, 0, &endpoint),
                     0); /* listens at what it was told */
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    assert_int_equal(fabric_open(NULL, "tcp:nobody.test:31999", &fabric), ROWAN_EUNREACHABLE);
}

UNIT_MAIN(NULL, NULL)
