#include <lwip_hosts.h>

#include <lwip/ip4.h>
#include <lwip_hooks.h>

void weft_lwip_host_address(int host, ip_addr_t* address) {
  IP_ADDR4(address, 10, 0, 0, (u8_t)(host + 1));
}

static err_t initialize(struct netif* interface) {
  interface->name[0] = 'w';
  interface->name[1] = 'f';
  interface->flags = NETIF_FLAG_UP | NETIF_FLAG_LINK_UP;
  return ERR_OK;
}

void weft_lwip_add_host(struct netif* interface, int host, netif_output_fn output, u16_t mtu) {
  ip_addr_t address;
  ip4_addr_t mask;
  weft_lwip_host_address(host, &address);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  netif_add(interface, ip_2_ip4(&address), &mask, NULL, NULL, initialize, ip4_input);
  interface->output = output;
  interface->mtu = mtu;
}

#ifdef WEFT_LWIP_ROUTE_BY_SOURCE
struct netif* weft_lwip_route(const ip4_addr_t* src, const ip4_addr_t* dest) {
  struct netif* interface;
  (void)dest;
  NETIF_FOREACH(interface) {
    if (src != NULL && ip4_addr_cmp(src, netif_ip4_addr(interface))) return interface;
  }
  return NULL;
}
#endif
