/* Many connections to a server, each with one request at a time: send, wait for the reply, again.
 *
 *   many HOST PORT CONNECTIONS IDLE COUNT REQUEST-FILE ERROR-OFFSET
 *
 * IDLE more connections are opened and say nothing. REQUEST-FILE holds a whole request, frame
 * length included; two zero bytes at ERROR-OFFSET of each reply mean that it was taken.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct peer {
    int fd;
    size_t got;
    double sent;
    unsigned char reply[512];
};

static int open_one(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("socket: %s", host);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static void ask(struct peer *peer, const char *request, size_t size) {
    peer->got = 0;
    peer->sent = now();
    if (send(peer->fd, request, size, MSG_NOSIGNAL) != (ssize_t)size) fail("send: %s", strerror(errno));
}

/* Whether the reply is whole; fails if it is not the one that was wanted. */
static int hear(struct peer *peer, size_t error_at) {
    ssize_t found = recv(peer->fd, peer->reply + peer->got, sizeof peer->reply - peer->got, 0);
    if (found <= 0) fail("the server closed a connection: %s", strerror(errno));
    peer->got += (size_t)found;
    if (peer->got < 4) return 0;
    uint32_t size;
    memcpy(&size, peer->reply, 4);
    size_t wanted = 4 + ntohl(size);
    if (wanted > sizeof peer->reply || wanted < error_at + 2) fail("a reply of %zu bytes", wanted);
    if (peer->got < wanted) return 0;
    if (peer->reply[error_at] || peer->reply[error_at + 1])
        fail("refused with error %d", peer->reply[error_at] << 8 | peer->reply[error_at + 1]);
    return 1;
}

int main(int arguments, char **argument) {
    enum { EVENTS = 256 };
    if (arguments != 8) fail("usage: see the head of many.c");
    const char *host = argument[1];
    int port = (int)number(argument[2]);
    long peers = number(argument[3]), idle = number(argument[4]), count = number(argument[5]);
    size_t error_at = (size_t)number(argument[7]);
    static char request[1 << 16];
    FILE *file = fopen(argument[6], "rb");
    if (!file) fail("%s: %s", argument[6], strerror(errno));
    size_t size = fread(request, 1, sizeof request, file);
    fclose(file);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (peers > count) fail("fewer requests than connections");
    for (long i = 0; i < idle; i++) open_one(host, port);
    struct peer *peer = room((size_t)peers, sizeof *peer);
    double *times = room((size_t)count, sizeof *times);
    int poll = epoll_create1(0);
    for (long i = 0; i < peers; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer[i]};
        peer[i].fd = open_one(host, port);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, peer[i].fd, &event)) fail("epoll: %s", strerror(errno));
    }
    double began = now();
    long asked = 0, heard = 0;
    for (; asked < peers; asked++) ask(&peer[asked], request, size);
    while (heard < count) {
        struct epoll_event events[EVENTS];
        int found = epoll_wait(poll, events, EVENTS, 30000);
        if (found <= 0) fail("%ld of %ld replies, and nothing for 30 s", heard, count);
        for (int i = 0; i < found; i++) {
            struct peer *one = events[i].data.ptr;
            if (!hear(one, error_at)) continue;
            times[heard++] = now() - one->sent;
            if (asked < count) asked++, ask(one, request, size);
        }
    }
    answer_times(times, count, now() - began);
    return 0;
}
