/* error.h - the one table of error codes, each with the sentence a user reads.
 *
 * Functions return 0 or a negative ROWAN_E*. errno, ibv_wc_status and ZooKeeper codes stop at the
 * seam that met them and become one of these. "Rejected" (it did not happen) and "unknown" (it may
 * have happened) are never the same code.
 *
 * client/rowan.h declares the same codes for programs; client/error.c asserts that both agree.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

/* X(name, number, sentence): the code is -number. Numbers are on the wire and in the public ABI:
 * they are never reused. */
#define ERROR_TABLE(X)                                                                             \
    X(ROWAN_ENOTFOUND, 1, "not found")                                                             \
    X(ROWAN_EVERSION, 2, "the object's version is not the expected one; read it and try again")    \
    X(ROWAN_EFULL, 3,                                                                              \
      "the server's persistent memory is full: puts are refused, reads go on, and so do deletes "  \
      "while there is space for them; what was deleted makes space within seconds, if anything "   \
      "was: try again; else delete something, or add space or servers")                            \
    X(ROWAN_EUNKNOWN, 4,                                                                           \
      "no answer came in time: the write may or may not have taken effect; read the key to find "  \
      "out")                                                                                       \
    X(ROWAN_ETIMEDOUT, 5, "no answer came in time; nothing was changed")                           \
    X(ROWAN_EKEYSIZE, 6, "a key must have 1 to 1024 bytes")                                        \
    X(ROWAN_EVALUESIZE, 7, "a value may have at most 1048576 bytes")                               \
    X(ROWAN_EBUFFER, 8, "the buffer is too small for the value; its size was reported")            \
    X(ROWAN_EBUSY, 9,                                                                              \
      "the server has too many operations waiting, or makes space; the operation was not started") \
    X(ROWAN_EEPOCH, 10, "the shard has moved on to another epoch; fetch the configuration")        \
    X(ROWAN_ENOTMINE, 11, "this server or worker does not lead the shard")                         \
    X(ROWAN_EUNREACHABLE, 12, "no connection to the server; is it running?")                       \
    X(ROWAN_ECLOSED, 13, "the connection was closed")                                              \
    X(ROWAN_EREFUSED, 14, "the peer refused the connection: not a member of this cluster")         \
    X(ROWAN_ECLUSTER, 15, "the peer or file belongs to another cluster")                           \
    X(ROWAN_EFORMAT, 16, "the bytes have an unknown or damaged format")                            \
    X(ROWAN_EDAMAGED, 17, "a checksum does not match: the stored bytes are damaged")               \
    X(ROWAN_EINVALID, 18, "an argument is out of range")                                           \
    X(ROWAN_ENOMEM, 19, "out of memory")                                                           \
    X(ROWAN_EIO, 20, "a file or a device failed; see the log for the system's reason")             \
    X(ROWAN_EINUSE, 21, "the file or address is in use by another process")                        \
    X(ROWAN_EEXISTS, 22, "it exists already")                                                      \
    X(ROWAN_EAGAIN, 23, "not possible just now; try again after polling")                          \
    X(ROWAN_ECONFIG, 24, "the configuration has a key or value that is not allowed")               \
    X(ROWAN_EUNSUPPORTED, 25, "this build or host does not support it")                            \
    X(ROWAN_ETOOMANY, 26,                                                                          \
      "a fixed limit is reached; a manager's is 4,096 connections (its log says so)")              \
    X(ROWAN_ENOSPACE, 27, "the file system has not enough free space")                             \
    X(ROWAN_EPERMISSION, 28, "no permission to read or write there")                               \
    X(ROWAN_EINCOMPATIBLE, 29,                                                                     \
      "the other program or file has a version that this program does not understand; compare "    \
      "what --version of both tells")                                                              \
    X(ROWAN_EADDRESS, 30,                                                                          \
      "an address begins with its fabric: shm:/DIRECTORY/NAME, tcp:HOST:PORT or verbs:HOST:PORT")  \
    X(ROWAN_ENOTLEADING, 31,                                                                       \
      "the configuration manager does not lead: it waits to, or has lost its coordination "        \
      "service")                                                                                   \
    X(ROWAN_EREMOVED, 32, "this process is no member of the cluster any more")                     \
    X(ROWAN_ELOGIN, 33,                                                                            \
      "no login: the cluster asks for a user's name and secret; these are not right, or came by "  \
      "an address that is not the server's own (a relay, a translation), or its secrets have "     \
      "changed since this program logged in: then start that again")                               \
    X(ROWAN_EACCESS, 34,                                                                           \
      "the user may not do this, or not with this key: an admin can change that (rowan user)")

#ifndef ROWAN_H /* client/rowan.h, when included first, has declared the same enumerators */
#define ERROR_ENUMERATOR(name, number, sentence) name = -(number),
enum rowan_error { ROWAN_OK = 0, ERROR_TABLE(ERROR_ENUMERATOR) };
#undef ERROR_ENUMERATOR
#endif

/* The lowest code: the numbers go from 1 up without a gap. */
#define ERROR_COUNT(name, number, sentence) -1
enum { ERROR_LOWEST = 0 ERROR_TABLE(ERROR_COUNT) };
#undef ERROR_COUNT

/* error_sentence: what a person reads for `error`; "done" for 0; never NULL, static storage. */
const char *error_sentence(int error);

/* error_name: "ROWAN_ENOTFOUND"; "ROWAN_OK" for 0; never NULL, static storage. */
const char *error_name(int error);

/* error_from_errno: the nearest ROWAN_E* for a system errno (> 0). */
int error_from_errno(int system_errno);

#endif
