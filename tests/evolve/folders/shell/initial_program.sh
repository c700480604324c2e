#!/bin/sh
# EVOLVE-BLOCK-START
echo $(($1 + $1))
# EVOLVE-BLOCK-END
