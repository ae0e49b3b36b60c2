/* Puts, gets and deletes one key, waiting for each answer. Usage: ./sync DIRECTORY-OF-THE-CLUSTER
 */
#include <rowan.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, rowan_error_sentence(error));
    return 1;
}

int main(int argc, char **argv)
{
    const char key[] = "greeting", hello[] = "hello, rowan";
    char value[100];
    size_t bytes;
    uint64_t version;
    struct rowan_options options;
    struct rowan *rowan;
    int error;

    rowan_options_init(&options);
    options.directory = argc > 1 ? argv[1] : ".";
    error = rowan_open(&options, &rowan);
    if (error)
        return failed("open", error);

    error = rowan_put(rowan, key, strlen(key), hello, strlen(hello), &version);
    if (error)
        return failed("put", error);
    error = rowan_get(rowan, key, strlen(key), value, sizeof value, &bytes, &version);
    if (error)
        return failed("get", error);
    printf("%.*s\n", (int)bytes, value);

    /* Only if nobody changed it meanwhile. */
    error = rowan_put_if_version(rowan, key, strlen(key), "bye", 3, version, &version);
    if (error)
        return failed("put if version", error);
    error = rowan_del(rowan, key, strlen(key));
    if (error)
        return failed("del", error);
    error = rowan_get(rowan, key, strlen(key), value, sizeof value, &bytes, &version);
    printf("after the delete: %s\n", rowan_error_sentence(error));
    rowan_close(rowan);
    return error == ROWAN_ENOTFOUND ? 0 : 1;
}
