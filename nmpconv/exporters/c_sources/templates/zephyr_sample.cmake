cmake_minimum_required(VERSION 3.20)
list(APPEND EXTRA_ZEPHYR_MODULES ${CMAKE_CURRENT_LIST_DIR}/../..) # this bundle; not needed where west knows it
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(@EXAMPLE@ LANGUAGES C)
target_sources(app PRIVATE src/main.c)
