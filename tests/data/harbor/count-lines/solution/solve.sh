#!/bin/bash
grep -c "" poem.txt > answer.txt
