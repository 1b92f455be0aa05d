/* Options of lwIP for Weft: TCP over IPv4 by the raw API, without an operating system.
 *
 * A board may set the sizes on the compiler's command line; what it does not set is for tests on a
 * workstation. WEFT_LWIP_THREADS=1 gives lwIP its own thread. */
#pragma once

#ifndef WEFT_LWIP_THREADS
#define WEFT_LWIP_THREADS 0
#endif

#define NO_SYS (!WEFT_LWIP_THREADS)
#define SYS_LIGHTWEIGHT_PROT WEFT_LWIP_THREADS
#define LWIP_TCPIP_CORE_LOCKING 1
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define TCPIP_MBOX_SIZE 256
#define LWIP_COMPAT_MUTEX 0

/* Protocols: TCP over IPv4, and ping. */
#define LWIP_IPV4 1
#define LWIP_IPV6 0
#define LWIP_TCP 1
#define LWIP_UDP 0
#define LWIP_RAW 0
#define LWIP_ICMP 1
#define LWIP_ARP 1
#define LWIP_ETHERNET 1
#define LWIP_DHCP 0
#define LWIP_AUTOIP 0
#define LWIP_IGMP 0
#define LWIP_DNS 0
#define IP_REASSEMBLY 0
#define IP_FRAG 0
#define LWIP_STATS 0
#define LWIP_NETIF_API 0
/* With a thread of its own lwIP may talk to itself: for tests. */
#define LWIP_NETIF_LOOPBACK WEFT_LWIP_THREADS
#define LWIP_NETIF_TX_SINGLE_PBUF 0
#define ARP_QUEUEING 1

/* TCP. One FPDU goes into one segment; the window is what a connection costs in memory. */
#ifndef TCP_MSS
#define TCP_MSS 1460
#endif
#ifndef TCP_WND
#define TCP_WND (16 * TCP_MSS)
#endif
#ifndef TCP_SND_BUF
#define TCP_SND_BUF (16 * TCP_MSS)
#endif
#ifndef TCP_SND_QUEUELEN
#define TCP_SND_QUEUELEN (6 * (TCP_SND_BUF / TCP_MSS))
#endif
/* Copied octets (start-up, headers) take what they need, not a whole segment. */
#define TCP_OVERSIZE 0
#define TCP_QUEUE_OOSEQ 1
#define TCP_LISTEN_BACKLOG 1
#define LWIP_TCP_SACK_OUT 0
#define LWIP_TCP_TIMESTAMPS 0
#define LWIP_WND_SCALE 0
#define LWIP_TCP_KEEPALIVE 1

/* Memory. */
#ifndef MEM_ALIGNMENT
#define MEM_ALIGNMENT 8
#endif
#ifndef WEFT_LWIP_POOLS
/* Every buffer is an allocation of its own, so that a sanitizer sees each octet too many. */
#define MEM_LIBC_MALLOC 1
#define MEMP_MEM_MALLOC 1
#else
#ifndef MEM_SIZE
#define MEM_SIZE 8192
#endif
#ifndef MEMP_NUM_TCP_PCB
#define MEMP_NUM_TCP_PCB 3
#endif
#ifndef MEMP_NUM_TCP_PCB_LISTEN
#define MEMP_NUM_TCP_PCB_LISTEN 1
#endif
#ifndef MEMP_NUM_TCP_SEG
#define MEMP_NUM_TCP_SEG 24
#endif
#ifndef MEMP_NUM_PBUF
#define MEMP_NUM_PBUF 24
#endif
#ifndef PBUF_POOL_SIZE
#define PBUF_POOL_SIZE 8
#endif
#define MEMP_NUM_SYS_TIMEOUT (LWIP_NUM_SYS_TIMEOUT_INTERNAL)
#endif
#ifndef PBUF_POOL_BUFSIZE
#define PBUF_POOL_BUFSIZE (TCP_MSS + 40 + 14 + ETH_PAD_SIZE)
#endif
#ifndef ETH_PAD_SIZE
#define ETH_PAD_SIZE 0
#endif

/* Checksums are made and checked: a link may corrupt. */
#define CHECKSUM_GEN_IP 1
#define CHECKSUM_GEN_TCP 1
#define CHECKSUM_CHECK_IP 1
#define CHECKSUM_CHECK_TCP 1
#define LWIP_CHECKSUM_ON_COPY 0
/* lwIP's own sum, for comparison: bench/embedded. */
#ifndef WEFT_LWIP_OWN_CHECKSUM
#define LWIP_CHKSUM weft_lwip_checksum
#endif

/* Where segments are seen before they are put in order, and, where several stacks share a program,
 * which interface a source address belongs to. */
#define LWIP_HOOK_FILENAME "lwip_hooks.h"
#ifdef WEFT_LWIP_ROUTE_BY_SOURCE
/* Here, because lwIP's headers ask for it before they include that file. */
#define LWIP_HOOK_IP4_ROUTE_SRC(src, dest) weft_lwip_route((src), (dest))
#endif
