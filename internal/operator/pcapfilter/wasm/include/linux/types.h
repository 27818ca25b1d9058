/* Empty on purpose: gencode.c includes it, but takes nothing from it. */
