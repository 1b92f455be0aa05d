weft_add_test(check_test LABELS unit SOURCES check_accesses_test.cc check_ends_test.cc check_queues_test.cc check_rules_test.cc check_sources_test.cc check_threads_test.cc DEPS weft_check_rules)
