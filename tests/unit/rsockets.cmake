weft_add_test(rsockets_test
  LABELS unit
  SOURCES rsockets_receive_ring_test.cc rsockets_sending_test.cc ../../src/rsockets/rs_farewell.cc
          ../../src/rsockets/rs_receive_ring.cc
  DEPS weft_base)
weft_add_test(rsockets_memory_test LABELS unit SOURCES rsockets_memory_test.cc ../../src/rsockets/rs_maps.cc DEPS weft_verbs)
