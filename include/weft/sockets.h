/* IWARP mode: an ordinary TCP socket becomes an rsocket, so that the calls of <rdma/rsocket.h> for
 * registered memory (riomap, riowrite, riounmap) work on it. docs/sockets.md. C and C++.
 *
 *   int on = 1;
 *   setsockopt(fd, SOL_RDMA, WEFT_MODE, &on, sizeof on);
 *
 * on a socket before connect(), or before listen() for the connections it will accept. All other
 * calls of the program stay as they are.
 *
 *   0            the mode is set. connect() then connects by RDMA or fails; of the accepted
 *                connections those have it whose client asks for RDMA, the others are plain TCP
 *   ENOPROTOOPT  the program does not run under `weft run --sockets`: go on with TCP
 *   EOPNOTSUPP   Weft's librdmacm.so.1 is not the one of this process: go on with TCP
 *   EISCONN      the socket is connected
 *
 * getsockopt() tells: 1 if the connection is an rsocket (before there is one: if the mode is set).
 */
#pragma once

#ifndef SOL_RDMA
#define SOL_RDMA 0x10000 /* as <rdma/rsocket.h> has it */
#endif

enum { WEFT_MODE = 0x57 };
