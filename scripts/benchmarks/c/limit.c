/* The limit below a broker: what the kernel takes for a message when the programs do nothing but system calls.

       limit answer PORT               a server that answers each frame
       limit slave PORT FILE           stores what it reads, and acknowledges how many bytes that were
       limit master PORT FILE SLAVE    stores frames, passes them on to the slave, answers what it has acknowledged
       limit load PORT BYTES FIRST_WARM_UP WARM_UP SECONDS WINDOW...
                                       WINDOW frames under way on one connection; a line of JSON for each start and end

   A frame is its length, 4 bytes, big endian, and as many bytes; an answer is ANSWER_BYTES of anything. FILE is written over and
   over, so that it stays small. Servers take one client at a time, on 127.0.0.1, and run until they are killed.
*/

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES 200
#define WINDOW_MAX 4096
#define BUFFER_BYTES (1 << 20)
#define FILE_BYTES (64 << 20)

static char buffer[BUFFER_BYTES], answers[WINDOW_MAX * ANSWER_BYTES];

/* Where frames end in a stream of bytes. */
struct frames {
    uint8_t head[4];
    int head_size;
    uint64_t left, at;
};

static struct sockaddr_in address_of(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int without_delay(int fd)
{
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        err(1, "TCP_NODELAY");
    return fd;
}

static int listening(const char *port)
{
    struct sockaddr_in address = address_of(port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 16))
        err(1, "port %s", port);
    printf("ready port=%s\n", port);
    fflush(stdout);
    return fd;
}

static int accepted(int listener)
{
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        err(1, "accept");
    return without_delay(fd);
}

static int connected(const char *port)
{
    struct sockaddr_in address = address_of(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        err(1, "connect to port %s", port);
    return without_delay(fd);
}

static int opened(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, FILE_BYTES))
        errx(1, "%s cannot be made", path);
    return fd;
}

static void send_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0)
            err(1, "send");
        at += sent, size -= sent;
    }
}

/* What has arrived, in the buffer; 0 when the peer has left. */
static ssize_t received(int fd)
{
    ssize_t size = recv(fd, buffer, sizeof buffer, 0);
    return size < 0 ? 0 : size;
}

/* The buffer's bytes, which begin at `at` of the stream, into the file. */
static void store(int fd, uint64_t at, size_t size)
{
    uint64_t place = at % FILE_BYTES;
    if (place + size > FILE_BYTES)
        place = 0;
    if (pwrite(fd, buffer, size, place) != (ssize_t)size)
        err(1, "pwrite");
}

/* Takes bytes of the buffer; returns how many frames end there, and with `ends` where, in the order of the stream. */
static int ended(struct frames *frames, size_t size, uint64_t *ends, int *last)
{
    int count = 0;
    for (size_t at = 0; at < size;) {
        if (frames->head_size < 4) {
            frames->head[frames->head_size++] = buffer[at++], frames->at++;
            if (frames->head_size < 4)
                continue;
            uint32_t length;
            memcpy(&length, frames->head, 4);
            frames->left = ntohl(length);
        }
        uint64_t step = frames->left < size - at ? frames->left : size - at;
        at += step, frames->left -= step, frames->at += step;
        if (!frames->left) {
            frames->head_size = 0, count++;
            if (ends)
                ends[(*last)++ % WINDOW_MAX] = frames->at;
        }
    }
    return count;
}

static int watching(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    int poll = epoll_create1(0);
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event))
        err(1, "epoll");
    return poll;
}

static void answer(const char *port)
{
    for (int listener = listening(port);;) {
        int client = accepted(listener), poll = watching(client);
        struct frames frames = {0};
        struct epoll_event event;
        ssize_t size = 1;
        while (size && epoll_wait(poll, &event, 1, -1) == 1 && (size = received(client)))
            send_all(client, answers, ended(&frames, size, NULL, NULL) * ANSWER_BYTES);
        close(client), close(poll);
    }
}

static void slave(const char *port, const char *path)
{
    int file = opened(path);
    for (int listener = listening(port);;) {
        int master = accepted(listener), poll = watching(master);
        uint64_t at = 0;
        struct epoll_event event;
        ssize_t size = 1;
        while (size && epoll_wait(poll, &event, 1, -1) == 1 && (size = received(master))) {
            store(file, at, size);
            at += size;
            send_all(master, &at, sizeof at);
        }
        close(master), close(poll);
    }
}

static void pass_on(const char *port, const char *path, const char *slave_port)
{
    int file = opened(path);
    for (int listener = listening(port);;) {
        int client = accepted(listener), follower = connected(slave_port), poll = watching(client);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = follower};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, follower, &event))
            err(1, "epoll");
        struct frames frames = {0};
        static uint64_t ends[WINDOW_MAX];
        int first = 0, last = 0;
        ssize_t size = 1;
        while (size && epoll_wait(poll, &event, 1, -1) == 1 && (size = received(event.data.fd))) {
            if (event.data.fd == client) {
                store(file, frames.at, size);
                send_all(follower, buffer, size);
                ended(&frames, size, ends, &last);
                continue;
            }
            uint64_t held; /* Acknowledgements are 8 bytes each, and sent whole: the last one counts. */
            int due = 0;
            memcpy(&held, buffer + size - sizeof held, sizeof held);
            for (; first != last && ends[first % WINDOW_MAX] <= held; first++)
                due++;
            send_all(client, answers, due * ANSWER_BYTES);
        }
        close(client), close(follower), close(poll);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Keeps `window` frames under way for so long; returns how many were answered. Each frame is a call of its own, as those of a
   client with threads are. */
static long run(int server, const char *frame, size_t bytes, int window, double seconds)
{
    double end = now() + seconds;
    long sent = 0, answered = 0, taken = 0;
    while (answered < sent || now() < end) {
        for (; sent - answered < window && now() < end; sent++)
            send_all(server, frame, bytes);
        if (answered == sent)
            break;
        ssize_t size = received(server);
        if (!size)
            errx(1, "the server has left");
        taken += size;
        answered = taken / ANSWER_BYTES;
    }
    return answered;
}

static void load(char **arguments)
{
    size_t bytes = atoi(arguments[1]);
    double first = atof(arguments[2]), warm_up = atof(arguments[3]), seconds = atof(arguments[4]);
    char *frame = calloc(1, bytes);
    uint32_t length = htonl(bytes - 4);
    memcpy(frame, &length, 4);
    int server = connected(arguments[0]);
    run(server, frame, bytes, atoi(arguments[5]), first);
    for (char **each = arguments + 5; *each; each++) {
        int window = atoi(*each);
        run(server, frame, bytes, window, warm_up);
        printf("{\"event\":\"start\",\"threads\":%d}\n", window);
        fflush(stdout);
        double began = now();
        long answered = run(server, frame, bytes, window, seconds);
        printf("{\"event\":\"end\",\"threads\":%d,\"elapsed_s\":%.3f,\"answered\":%ld,\"outcomes\":{\"answered\":%ld}}\n", window,
               now() - began, answered, answered);
        fflush(stdout);
    }
}

int main(int count, char **arguments)
{
    const char *role = count > 2 ? arguments[1] : "";
    if (!strcmp(role, "answer") && count == 3)
        answer(arguments[2]);
    else if (!strcmp(role, "slave") && count == 4)
        slave(arguments[2], arguments[3]);
    else if (!strcmp(role, "master") && count == 5)
        pass_on(arguments[2], arguments[3], arguments[4]);
    else if (!strcmp(role, "load") && count > 7)
        load(arguments + 2);
    else
        errx(2, "limit answer|slave|master|load PORT ..., as limit.c says");
    return 0;
}
