"""Sockets that a test knows, as mode all of test/sockets/testdata/sockets.c has them: sockets.py all IP4 PEER4 IP6 PEER6 PORT."""

import os
import socket
import sys
import threading
import time

ECHO_PORT = 9000
ips, peers, base = sys.argv[2:6:2], sys.argv[3:6:2], int(sys.argv[6])


def bound(kind, v6, port):
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((ips[v6], port))
    return s


def echo_udp(s):
    while True:
        data, sender = s.recvfrom(2000)
        s.sendto(data, sender)


def echo_tcp(s):
    while True:
        c, _ = s.accept()
        while data := c.recv(2000):
            c.send(data)
        c.close()


def receive(s):
    """Reads an answer. Datagrams may be lost."""
    s.settimeout(0.1)
    try:
        s.recv(100)
    except TimeoutError:
        pass


def talk(s):
    while True:
        s.send(b"hello")
        receive(s)
        time.sleep(0.01)


def talk_unconnected(s, to):
    while True:
        s.sendto(b"hello", (to, ECHO_PORT))
        receive(s)
        time.sleep(0.01)


def start(run, *args):
    threading.Thread(target=run, args=args, daemon=True).start()


def connected(kind, v6, port):
    s = bound(kind, v6, port)
    s.connect((peers[v6], ECHO_PORT))
    return s


for v6 in (0, 1):
    listener = bound(socket.SOCK_STREAM, v6, base + v6)
    listener.listen(100)
    start(echo_tcp, listener)
    start(echo_udp, bound(socket.SOCK_DGRAM, v6, base + 2 + v6))
    start(talk, connected(socket.SOCK_STREAM, v6, base + 4 + v6))
    start(talk, connected(socket.SOCK_DGRAM, v6, base + 6 + v6))
    start(talk_unconnected, bound(socket.SOCK_DGRAM, v6, base + 8 + v6), peers[v6])
for i in range(10):
    print(os.getpid(), base + i)
print("ready", flush=True)
threading.Event().wait()
