score() {
  if [ "$(paste -sd ' ' /app/sorted.txt)" = "$WANTED" ]; then echo 1.0; else echo 0.25; fi
}
