#include "lwip/board/netif.h"

#include <lwip/etharp.h>
#include <lwip/init.h>
#include <lwip/ip4.h>
#include <lwip/pbuf.h>
#include <lwip/sys.h>
#include <lwip/timeouts.h>
#include <netif/ethernet.h>
#include <string.h>

#include "lwip/board/board.h"

/* Locally administered; its last octet is that of the address. */
static const uint8_t mac_prefix[5] = {0x02, 0x57, 0x45, 0x46, 0x00};
/* Frames shorter than this are padded, as Ethernet wants them. */
enum { FRAME_MIN = 60, FRAME_MAX = 1514 };

static unsigned dropped;

/* The parts go to the adapter from where they lie. */
static err_t link_output(struct netif* interface, struct pbuf* p) {
  static const uint8_t padding[FRAME_MIN];
  const size_t size = p->tot_len < FRAME_MIN ? FRAME_MIN : p->tot_len;
  const size_t padded = size - p->tot_len;
  (void)interface;
  if (size > FRAME_MAX) return ERR_BUF;
  if (!board_eth_begin(size)) return ERR_IF; /* TCP sends it again */
  for (; p != NULL; p = p->next) board_eth_put(p->payload, p->len);
  if (padded != 0) board_eth_put(padding, padded);
  return ERR_OK;
}

static err_t interface_init(struct netif* interface) {
  interface->name[0] = 'e';
  interface->name[1] = 'n';
  interface->hwaddr_len = ETH_HWADDR_LEN;
  memcpy(interface->hwaddr, mac_prefix, sizeof mac_prefix);
  interface->hwaddr[5] = ip4_addr4(netif_ip4_addr(interface));
  interface->mtu = TCP_MSS + 40;
  interface->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET |
                     NETIF_FLAG_LINK_UP | NETIF_FLAG_UP;
  interface->output = etharp_output;
  interface->linkoutput = link_output;
  return ERR_OK;
}

void board_net_start(struct netif* interface, const ip4_addr_t* address, const ip4_addr_t* mask) {
  weft_board_mark_stack();
  lwip_init();
  netif_add(interface, address, mask, NULL, NULL, interface_init, ethernet_input);
  netif_set_default(interface);
}

static void receive_one(struct netif* interface, size_t size) {
  static uint8_t nowhere[4];
  struct pbuf* p = NULL;
  if (size <= FRAME_MAX) p = pbuf_alloc(PBUF_RAW, (u16_t)size, PBUF_POOL);
  if (p == NULL || p->next != NULL) { /* a buffer of the pool holds the largest frame */
    if (p != NULL) pbuf_free(p);
    board_eth_receive(nowhere, 0);
    ++dropped;
    return;
  }
  board_eth_receive(p->payload, size);
  if (interface->input(p, interface) != ERR_OK) pbuf_free(p);
}

void board_net_poll(struct netif* interface, unsigned frames_max) {
  for (unsigned i = 0; i < frames_max; ++i) {
    const size_t size = board_eth_waiting();
    if (size == 0) break;
    receive_one(interface, size);
  }
  sys_check_timeouts();
}

unsigned board_net_dropped(void) { return dropped; }

/* Counts up from the last call: dividing 64 bits would take 900 octets of code. */
u32_t sys_now(void) {
  enum { NS_PER_MS = 1000000, MS_AT_ONCE = 4000 };
  static uint64_t counted_ns;
  static u32_t counted_ms;
  const uint64_t at_once_ns = (uint64_t)MS_AT_ONCE * NS_PER_MS;
  const uint64_t now_ns = board_now_ns();
  while (now_ns - counted_ns >= at_once_ns) {
    counted_ns += at_once_ns;
    counted_ms += MS_AT_ONCE;
  }
  const u32_t ms = (u32_t)(now_ns - counted_ns) / NS_PER_MS;
  counted_ns += ms * (u32_t)NS_PER_MS;
  counted_ms += ms;
  return counted_ms;
}
