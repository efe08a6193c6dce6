"""A data script as people write them: NumPy, and many modules of the standard library and beside it."""

import argparse
import asyncio
import concurrent.futures
import csv
import ctypes
import dataclasses
import datetime
import decimal
import email.message
import hashlib
import html.parser
import http.client
import importlib.metadata
import json
import logging.handlers
import multiprocessing
import pathlib
import sqlite3
import statistics
import subprocess
import tarfile
import tempfile
import typing
import unittest
import urllib.request
import uuid
import xml.etree.ElementTree
import zipfile

import jinja2
import lxml.etree
import numpy
import requests
import sqlalchemy
import sqlalchemy.orm
import yaml

values = numpy.linspace(0.0, 1.0, 1001)
coefficients = numpy.polyfit(values, numpy.sin(values), 3)
spectrum = numpy.abs(numpy.fft.rfft(values))
text = jinja2.Template("{{ count }} values, mean {{ mean }}").render(count=values.size, mean=values.mean())
assert len(coefficients) == 4 and spectrum.size == 501
print(text)
