weft_add_test(like_test LABELS unit SOURCES like_device_profile_test.cc DEPS weft_like)
