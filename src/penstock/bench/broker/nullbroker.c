/* The ceiling of the broker benchmarks: a name server and broker that stores nothing.
 *
 * One thread, one port, fixed replies: a route for every topic, success for every send and heartbeat. What a client
 * reaches against it is what the client and the network allow. Usage: nullbroker PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_MAX = 16 << 20, HEADER_MAX = 1 << 16, EVENTS = 256 };

struct connection {
    int fd;
    unsigned char *in;
    size_t got, room;
    unsigned char *out;
    size_t owed, out_room;
};

static char route[512];
static size_t route_size;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t word_at(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_word(unsigned char *at, uint32_t value) {
    at[0] = value >> 24;
    at[1] = value >> 16;
    at[2] = value >> 8;
    at[3] = value;
}

static void grow(unsigned char **buffer, size_t *room, size_t wanted) {
    if (wanted <= *room)
        return;
    size_t size = *room ? *room : 1 << 16;
    while (size < wanted)
        size *= 2;
    *buffer = realloc(*buffer, size);
    if (!*buffer)
        die("memory");
    *room = size;
}

/* A whole number behind a name in the JSON header. The names stand before the properties that users choose, or
 * behind them as the last of their kind, so the last one is the command's own. */
static long number(const char *header, size_t size, const char *name, long otherwise) {
    size_t length = strlen(name);
    const char *found = NULL, *at = header;
    while ((at = memmem(at, header + size - at, name, length)) != NULL) {
        found = at + length;
        at = found;
    }
    return found ? strtol(found, NULL, 10) : otherwise;
}

static void reply(struct connection *c, long opaque, const char *fields, const char *body, size_t body_size) {
    char header[1024];
    int size = snprintf(header, sizeof header,
                        "{\"code\":0,\"extFields\":{%s},\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,"
                        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
                        fields, opaque);
    grow(&c->out, &c->out_room, c->owed + 8 + size + body_size);
    unsigned char *at = c->out + c->owed;
    put_word(at, 4 + size + body_size);
    put_word(at + 4, size);
    memcpy(at + 8, header, size);
    memcpy(at + 8 + size, body, body_size);
    c->owed += 8 + size + body_size;
}

static void answer(struct connection *c, const char *header, size_t size) {
    long opaque = number(header, size, "\"opaque\":", 0);
    long flag = number(header, size, "\"flag\":", 0);
    if (flag & 3)
        return;
    switch (number(header, size, "\"code\":", 0)) {
    case 105:
        reply(c, opaque, "", route, route_size);
        break;
    case 34:
        reply(c, opaque, "\"IS_SUPPORT_HEART_BEAT_V2\":\"true\",\"IS_SUB_CHANGE\":\"true\"", "", 0);
        break;
    case 310:
    case 320:
    case 10:
        reply(c, opaque,
              "\"MSG_REGION\":\"DefaultRegion\",\"TRACE_ON\":\"true\","
              "\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueId\":\"0\",\"queueOffset\":\"0\","
              "\"transactionId\":\"7F00000100002A9F0000000000000000\"",
              "", 0);
        break;
    default:
        reply(c, opaque, "", "", 0);
    }
}

/* False when the connection is over. */
static int serve(struct connection *c) {
    for (;;) {
        grow(&c->in, &c->room, c->got + (1 << 16));
        ssize_t got = read(c->fd, c->in + c->got, c->room - c->got);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return 0;
        if (got < 0)
            break;
        c->got += got;
    }
    size_t at = 0;
    while (c->got - at >= 8) {
        uint32_t frame = word_at(c->in + at), header = word_at(c->in + at + 4) & 0xFFFFFF;
        if (frame > FRAME_MAX || header > HEADER_MAX || header + 4 > frame)
            return 0;
        if (c->got - at < frame + 4)
            break;
        answer(c, (char *)c->in + at + 8, header);
        at += frame + 4;
    }
    memmove(c->in, c->in + at, c->got - at);
    c->got -= at;
    size_t sent = 0;
    while (sent < c->owed) {
        ssize_t wrote = write(c->fd, c->out + sent, c->owed - sent);
        if (wrote < 0 && errno != EAGAIN && errno != EINTR)
            return 0;
        sent += wrote > 0 ? wrote : 0;
    }
    c->owed = 0;
    return 1;
}

int main(int count, char **arguments) {
    int port = count == 2 ? atoi(arguments[1]) : 0;
    if (port <= 0) {
        fprintf(stderr, "usage: nullbroker PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    route_size = snprintf(route, sizeof route,
                          "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:%d\"},\"brokerName\":\"broker-a\","
                          "\"cluster\":\"DefaultCluster\",\"enableActingMaster\":false}],\"filterServerTable\":{},"
                          "\"queueDatas\":[{\"brokerName\":\"broker-a\",\"perm\":6,\"readQueueNums\":8,"
                          "\"topicSysFlag\":0,\"writeQueueNums\":8}]}",
                          port);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128))
        die("listen");
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0)
                    continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                c = calloc(1, sizeof *c);
                c->fd = fd;
                struct epoll_event next = {.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &next);
            } else if (!serve(c)) {
                close(c->fd);
                free(c->in);
                free(c->out);
                free(c);
            }
        }
    }
}
