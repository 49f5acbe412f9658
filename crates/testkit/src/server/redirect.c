/* Redirects the outgoing connections of a server. The library is preloaded into the server. Each line of the file that
 * LEASEHOLD_TEST_REDIRECT names has two ports: a connection to the first port, at any address, goes to the second port
 * on loopback. The file is read for each connection, because ports are added while a server runs. The system call is
 * made directly, so that the library works with older C libraries. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned other(unsigned wanted) {
	const char *path = getenv("LEASEHOLD_TEST_REDIRECT");
	FILE *file = path ? fopen(path, "re") : 0;
	char line[64];
	unsigned found = 0;
	while (file && !found && fgets(line, sizeof line, file)) {
		char *rest;
		if (strtoul(line, &rest, 10) == wanted)
			found = strtoul(rest, 0, 10);
	}
	if (file)
		fclose(file);
	return found;
}

int connect(int fd, const struct sockaddr *to, socklen_t length) {
	struct sockaddr_in in;
	if (to && to->sa_family == AF_INET && length >= sizeof in) {
		unsigned port;
		memcpy(&in, to, sizeof in);
		port = other(ntohs(in.sin_port));
		if (port) {
			in.sin_port = htons(port);
			in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			return syscall(SYS_connect, fd, &in, sizeof in);
		}
	}
	return syscall(SYS_connect, fd, to, length);
}
