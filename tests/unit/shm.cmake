weft_add_test(shm_ring_test
  LABELS unit
  SOURCES io_path_transport_test.cc shm_ring_test.cc shm_ring_handover_test.cc
          shm_ring_hostile_test.cc shm_ring_privileges_test.cc shm_ring_spare_test.cc
  DEPS weft_io fmt::fmt Threads::Threads)
