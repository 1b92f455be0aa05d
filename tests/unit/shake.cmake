weft_add_test(shake_test LABELS unit SOURCES shake_test.cc DEPS weft_shake)
